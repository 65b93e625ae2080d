"""`gru`: one step of a GRU layer. State: h (B, H)."""

from __future__ import annotations

from msgspec import Struct

from vkcat.blocks.scope import Scope, fan_in
from vkcat.config import GruBlock
from vkcat.graph import Graph, Tensor


class GruWeights(Struct, frozen=True):
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


def gru_rows(
    graph: Graph, name: str, x: Tensor, h: Tensor, mode: Tensor, lengths: Tensor, weights: GruWeights, y: Tensor
) -> Tensor:
    """GRU steps of all rows of x (R, I), T to each of B streams, reset after: h (B, H) is carried.

    Returns y (R, H), a memory for the states after each step. The input's product is one; each step's own is a node.
    """
    (given,) = graph.add("linear", f"{name}.input", x=x, w=weights.w_ih, bias=weights.b_ih)
    state, inputs = h, {"x": given, "w_hh": weights.w_hh, "b_hh": weights.b_hh, "mode": mode, "lengths": lengths}
    for t in range(x.shape[0] // h.shape[0]):
        (state,) = graph.add("gru_recurrence", f"{name}.{t}", {"t": t}, h=state, y=y, **inputs)
    graph.carry(h, state)
    return y


def gru_block(scope: Scope, name: str, block: GruBlock, x: Tensor, suffix: str = "") -> Tensor:
    """Weights are named as torch.nn.GRU's of one layer, without the layer's number; `suffix` is the direction's."""
    rows, shared, initial = 3 * block.hidden, scope.shared, fan_in(block.hidden)
    weights = GruWeights(
        w_ih=shared.matrix(f"{name}.weight_ih{suffix}", rows, x.shape[-1], initial=initial),
        w_hh=shared.matrix(f"{name}.weight_hh{suffix}", rows, block.hidden, initial=initial),
        b_ih=shared.weight(f"{name}.bias_ih{suffix}", rows, initial=initial),
        b_hh=shared.weight(f"{name}.bias_hh{suffix}", rows, initial=initial),
    )
    # States have no stack's name: an encoder's are the decoder's.
    h = shared.state(f"blocks.{name.rsplit('.', 1)[-1]}.h{suffix}", block.hidden)
    name = f"{name}.reverse" if suffix else name
    if scope.lengths is None:
        return gru(scope.graph, name, x, h, scope.mode, weights, block.reset)
    y = shared.scratch(f"{name}.y", x.shape[0], block.hidden)
    return gru_rows(scope.graph, name, x, h, scope.mode, scope.lengths, weights, y)
