"""Which matrices lie in panels: rows side by side, `panel` of them, so that neighbours' next numbers are neighbours.

A row-major matrix is walked by as many streams of addresses as an invocation has rows and a workgroup invocations. In
panels (the k-th vec4 of each row of a panel, then the next of each) there is one stream. shaders/include/product.glsl
reads either; what a shader without it reads stays row-major.
"""

from __future__ import annotations

from collections.abc import Iterable

from vkcat.graph import Graph, Node, Role, Tensor
from vkcat.shader import load

PANEL = 32
"""Rows of a panel on a software driver, whose workgroups walk many rows at once: `linear` and `gru_layer` take 0.8 to
0.93 of the time there with 256 to 1024 numbers a row. On a GPU neighbours share a row, and rows follow each other."""

FEWEST_PANELS = 2
"""A matrix with fewer would be padded to much more than it is."""


def paneled(graphs: Iterable[Graph], panel: int) -> set[Tensor]:
    """The matrices that can be in panels of so many rows: those that every node that reads them finds there.

    A node finds all of its matrices in panels or none.
    """
    if panel == 1:
        return set()
    nodes = [node for graph in graphs for node in graph.nodes]
    found = {tensor for node in nodes for tensor in _matrices(node) if _fits(tensor, panel)}
    while unfit := {
        tensor for node in nodes for tensor in found & set(node.tensors.values()) if not _reads(node, found)
    }:
        found -= unfit
    return found


def _matrices(node: Node) -> list[Tensor]:
    return [node.tensors[binding] for binding in node.kernel.packed]


def _fits(tensor: Tensor, panel: int) -> bool:
    return tensor.role is Role.WEIGHT and len(tensor.shape) == 2 and tensor.rows >= FEWEST_PANELS * panel


def _reads(node: Node, found: set[Tensor]) -> bool:
    """Whether a node can read all of its matrices in panels."""
    return "PANEL" in load(node.shader).interface.spec and all(tensor in found for tensor in _matrices(node))
