"""`mlp`: a gated MLP. No state."""

from __future__ import annotations

from vkcat.blocks.scope import Scope, fan_in
from vkcat.config import MlpBlock
from vkcat.graph import Tensor


def gated_mlp(scope: Scope, name: str, x: Tensor, hidden: int, activation: str) -> Tensor:
    w_in = scope.shared.matrix(f"{name}.w_in", 2 * hidden, x.shape[-1], initial=fan_in(x.shape[-1]))
    (made,) = scope.graph.add("mlp", name, {"situ": float(activation == "situ")}, x=x, w_in=w_in)
    return scope.linear(f"{name}.out", made, x.shape[-1])


def mlp(scope: Scope, name: str, block: MlpBlock, x: Tensor) -> Tensor:
    return gated_mlp(scope, name, x, block.hidden, block.activation)
