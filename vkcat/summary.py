"""What a model is made of and what a token costs, counted from its graphs."""

from __future__ import annotations

import sys

from msgspec import Struct

from vkcat.fusion import fused
from vkcat.graph import Graph, Node, Role, Tensor
from vkcat.model import Model


class Part(Struct, frozen=True):
    """Nodes of one name in a step: a block, a norm, the head."""

    name: str
    ops: tuple[str, ...]
    parameters: int
    state_bytes: int
    bytes_moved: int


class Cost(Struct, frozen=True):
    """One step of one graph. `dispatches` are those of a device with bindings enough to join all that can be joined,
    `active` the parameters that the step reads at most.
    """

    graph: str
    ops: int
    dispatches: int
    active: int
    bytes_moved: int
    parts: tuple[Part, ...]


def parameters(model: Model) -> int:
    return sum(tensor.size for tensor in model.weights.values())


def state_bytes(model: Model) -> int:
    """Of one stream, what a saved state holds; both slots of a state count once."""
    return sum(4 * tensor.size for tensor in model.shared.kept.values()) // model.batch


def costs(model: Model) -> list[Cost]:
    return [_cost(model, graph) for graph in model.graphs.values()]


def _cost(model: Model, graph: Graph) -> Cost:
    parts: dict[str, list[Node]] = {}
    for node in graph.nodes:
        parts.setdefault(part_name(node.name), []).append(node)
    return Cost(
        graph=graph.name,
        ops=len(graph.nodes),
        dispatches=len(fused(graph, sys.maxsize).nodes),
        active=_active(model, graph.nodes),
        bytes_moved=sum(node.bytes_moved for node in graph.nodes),
        parts=tuple(_part(model, name, nodes) for name, nodes in parts.items()),
    )


def part_name(node: str) -> str:
    """`encoder.blocks.1.q` belongs to `encoder.blocks.1`, `depth.2` to itself, `modulation.film` to `modulation`."""
    words = node.split(".")
    for at, word in enumerate(words):
        if word.isdigit():
            return ".".join(words[: at + 1])
    start = 1 if words[0] in ("encoder", "decoder") else 0
    return ".".join(words[: start + 1])


def _part(model: Model, name: str, nodes: list[Node]) -> Part:
    tensors = {tensor for node in nodes for tensor in node.tensors.values()}
    weights = set(model.weights.values())
    # A memory belongs to the part that writes it, not to one that only looks at it.
    changed = {tensor for node in nodes for tensor in (*node.reads, *node.writes) if tensor.role is Role.STATE}
    changed |= {tensor for node in nodes for tensor in node.writes}
    kept = set(model.shared.kept.values()) & changed
    return Part(
        name=name,
        ops=tuple(dict.fromkeys(node.kernel.name for node in nodes)),
        parameters=sum(tensor.size for tensor in tensors & weights),
        state_bytes=sum(4 * tensor.size for tensor in tensors & kept) // model.batch,
        bytes_moved=sum(node.bytes_moved for node in nodes),
    )


def _active(model: Model, nodes: list[Node]) -> int:
    weights = set(model.weights.values())
    read: dict[Tensor, int] = {}
    for node in nodes:
        for binding, count in node.moved.items():
            tensor = node.tensors[binding]
            if tensor.role is Role.WEIGHT and tensor in weights:
                read[tensor] = max(read.get(tensor, 0), count)
    return sum(read.values())
