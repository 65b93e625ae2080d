"""ONNX graphs of GRU layers as vkcat models."""

from vkcat.importers.onnx_gru.read import read_onnx

__all__ = ["read_onnx"]
