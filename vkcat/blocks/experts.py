"""`experts`: routed gated MLPs, plain or latent, with a shared one beside them. No state."""

from __future__ import annotations

import math

from vkcat.blocks.mlp import gated_mlp
from vkcat.blocks.scope import Scope, fan_in, zeros
from vkcat.config import ExpertsBlock
from vkcat.graph import Tensor


def experts(scope: Scope, name: str, block: ExpertsBlock, x: Tensor) -> Tensor:
    graph, width = scope.graph, x.shape[-1]
    index, weight = _route(scope, name, block, x)
    inner = block.latent or width
    z = scope.linear(f"{name}.down", x, inner) if block.latent else x
    shape = {"w_in": (2 * block.hidden, inner), "w_out": (inner, block.hidden)}
    w = {
        key: scope.shared.matrix(f"{name}.{key}", block.experts, *sizes, initial=fan_in(sizes[-1]))
        for key, sizes in shape.items()
    }
    (each,) = graph.add("moe_expert", name, {"situ": float(block.activation == "situ")}, x=z, index=index, **w)
    (y,) = graph.add("moe_combine", f"{name}.combine", y=each, weight=weight)
    if block.latent:
        y = scope.linear(f"{name}.up", scope.rms_norm(f"{name}.norm", y), width)
    if block.shared:
        shared = gated_mlp(scope, f"{name}.shared", x, block.shared, block.activation)
        y = scope.add(f"{name}.sum", y, shared)
    return y


def _route(scope: Scope, name: str, block: ExpertsBlock, x: Tensor) -> tuple[Tensor, Tensor]:
    """The chosen experts (B, k) and their weights (B, k)."""
    graph = scope.graph
    logits = scope.linear(f"{name}.router", x, block.experts)
    bias = scope.shared.weight(f"{name}.router.selection_bias", block.experts, initial=zeros)
    numbers = {"softmax": float(block.scores == "softmax"), "S": block.chosen}
    index, weight = graph.add("moe_route", f"{name}.route", numbers, logits=logits, bias=bias)
    if block.capacity:
        room = math.ceil(block.capacity * scope.shared.batch * block.chosen / block.experts)
        given = {"index": index, "weight": weight, "mode": scope.mode}
        weight, _ = graph.add("moe_capacity", f"{name}.capacity", {"capacity": room}, **given)
    return index, weight
