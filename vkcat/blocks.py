"""Blocks as graphs: the one place where a block's kernels are put together."""

from __future__ import annotations

from dataclasses import dataclass

from vkcat.graph import Graph, Tensor


@dataclass(frozen=True)
class GruWeights:
    """w_ih (3H, I), w_hh (3H, H), b_ih and b_hh (3H); gates in the order r, z, n."""

    w_ih: Tensor
    w_hh: Tensor
    b_ih: Tensor
    b_hh: Tensor


def gru(graph: Graph, name: str, x: Tensor, h: Tensor, mode: Tensor, weights: GruWeights, reset: str) -> Tensor:
    """One GRU step of x (B, I) and state h (B, H), carried; one dispatch with the reset after, two before."""
    w = {"w_ih": weights.w_ih, "w_hh": weights.w_hh, "b_ih": weights.b_ih, "b_hh": weights.b_hh}
    if reset == "after":
        (h_next,) = graph.add("gru_cell", name, x=x, h=h, mode=mode, **w)
    else:
        z, rh = graph.add("gru_gates", f"{name}.gates", x=x, h=h, mode=mode, **w)
        (h_next,) = graph.add("gru_candidate", name, x=x, h=h, z=z, rh=rh, mode=mode, **w)
    graph.carry(h, h_next)
    return h_next
