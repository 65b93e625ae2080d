"""Whole sequences on a device, for arrays without a model folder."""

from vkcat.sequences.gru import GruOutput, gru

__all__ = ["GruOutput", "gru"]
