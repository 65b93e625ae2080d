"""A stack as nodes of a graph: from the stream's input to what its output head reads."""

from __future__ import annotations

from vkcat.blocks import BLOCKS, Scope, Shared, depth_mixer
from vkcat.blocks.scope import normal, zeros
from vkcat.config import RmsNorm, Stack
from vkcat.graph import Graph, Tensor


def scope_of(graph: Graph, mode: Tensor, shared: Shared, stack: Stack, lengths: Tensor | None = None) -> Scope:
    return Scope(graph, mode, shared, stack.norm.eps if isinstance(stack.norm, RmsNorm) else RmsNorm().eps, lengths)


def embed(scope: Scope, prefix: str, stack: Stack, ids: Tensor) -> Tensor:
    """Tokens ids (B) as the stream's input (B, D)."""
    assert stack.input is not None
    table = scope.shared.matrix(f"{prefix}input.weight", stack.input.count, stack.width, initial=normal)
    (x,) = scope.graph.add("embedding", f"{prefix}input", ids=ids, table=table)
    return x


def run_stack(scope: Scope, prefix: str, stack: Stack, x: Tensor) -> Tensor:
    """Depth, norm and blocks in turn, then the last depth, norm and modulation."""
    h, context = run_blocks(scope, prefix, stack, x)
    return finish_stack(scope, prefix, stack, h, context)


def run_blocks(scope: Scope, prefix: str, stack: Stack, x: Tensor) -> tuple[Tensor, Tensor | None]:
    """What the last depth gives, and the context that modulates it, if any."""
    mixer = depth_mixer(scope, prefix, stack.depth, len(stack.blocks))
    h = mixer(0, x)
    made: list[Tensor] = []
    for at, block in enumerate(stack.blocks):
        read = _normed(scope, f"{prefix}norms.{at}", stack, h)
        made.append(BLOCKS[type(block)](scope, f"{prefix}blocks.{at}", block, read))
        h = mixer(at + 1, made[-1])
    return h, None if stack.modulation is None else made[stack.modulation.context]


def finish_stack(scope: Scope, prefix: str, stack: Stack, h: Tensor, context: Tensor | None) -> Tensor:
    """The last norm and modulation."""
    h = _normed(scope, f"{prefix}norm", stack, h)
    if context is not None:
        name = f"{prefix}modulation"
        film = scope.linear(name, context, 2 * h.shape[-1], initial=zeros)
        (h,) = scope.graph.add("modulation", f"{name}.film", x=h, film=film)
    return h


def _normed(scope: Scope, name: str, stack: Stack, h: Tensor) -> Tensor:
    return scope.rms_norm(name, h) if isinstance(stack.norm, RmsNorm) else h
