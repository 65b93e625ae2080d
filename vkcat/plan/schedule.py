"""Plans: the dispatches of each graph's step, for even and for odd steps, with their barriers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from vkcat.graph import Graph, Node, Role, Tensor
from vkcat.plan.hazards import Access, barriers
from vkcat.plan.layout import BufferSpec, Layout, Packing, Region, lay_out, parity_regions


class PlannedDispatch(Struct, frozen=True):
    """One dispatch; `barrier` is None, or the written regions that must be visible before it."""

    node: Node
    regions: tuple[Region, ...]
    barrier: tuple[Region, ...] | None


class Step(Struct, frozen=True):
    """The dispatches of one step in order, and the regions the host reads after it."""

    dispatches: tuple[PlannedDispatch, ...]
    to_host: tuple[Region, ...]


class Plan(Struct, frozen=True):
    """Buffers, where each tensor lies in even and odd steps, each graph's two steps, and the matrices in panels.

    `pending` is what any step may leave unordered: all that it reads, and all that it writes.
    """

    buffers: tuple[BufferSpec, ...] = ()
    regions: Mapping[Tensor, tuple[Region, Region]] = field(default_factory=dict)
    steps: Mapping[str, tuple[Step, Step]] = field(default_factory=dict)
    paneled: frozenset[Tensor] = frozenset()
    pending: Access = ((), ())


def schedule(graphs: Iterable[Graph], packing: Packing, before: Plan | None = None) -> Plan:
    """Plan the steps of `graphs`, which share weights and states and may follow each other in any order.

    `before` is the plan of other graphs that they are added to: what has a place there keeps it, and those graphs'
    steps stay as they are. Every step moves all states to their other slot: a state that a graph does not carry is
    undefined after it. Raises `DeviceError` when a tensor does not fit, `ValueError` when a state is read but not
    carried, or an added graph writes what one before it only reads.
    """
    before, graphs = before or Plan(), list(graphs)
    for graph in graphs:
        for tensor in graph.tensors():
            if tensor.role is Role.STATE and tensor not in graph.carries:
                raise ValueError(f"{graph.name}: state {tensor.name} is used but not carried to the next step")
    layout = lay_out(graphs, packing, Layout(list(before.buffers), dict(before.regions), set(before.paneled)))
    read, written = _left_unordered(graphs, layout)
    unforeseen = set(written) & set(before.pending[0]) - set(before.pending[1])
    if unforeseen:
        raise ValueError(f"{graphs[0].name}: an added graph writes what graphs before it only read: {unforeseen}")
    pending = _united(before.pending[0], read), _united(before.pending[1], written)
    steps = {graph.name: (_step(graph, layout, pending, 0), _step(graph, layout, pending, 1)) for graph in graphs}
    return Plan(tuple(layout.buffers), layout.regions, {**before.steps, **steps}, frozenset(layout.paneled), pending)


def _united(first: Sequence[Region], second: Sequence[Region]) -> tuple[Region, ...]:
    return tuple(dict.fromkeys((*first, *second)))


def _access(node: Node, layout: Layout, parity: int) -> Access:
    return (
        [layout.regions[tensor][parity] for tensor in node.reads],
        [layout.regions[tensor][parity] for tensor in node.writes],
    )


def _left_unordered(graphs: Iterable[Graph], layout: Layout) -> Access:
    """Everything that any step may have read or written before another begins."""
    read: dict[Region, None] = {}
    written: dict[Region, None] = {}
    for graph in graphs:
        for node in graph.nodes:
            for parity in (0, 1):
                reads, writes = _access(node, layout, parity)
                read.update(dict.fromkeys(reads))
                written.update(dict.fromkeys(writes))
    return list(read), list(written)


def _step(graph: Graph, layout: Layout, before: Access, parity: int) -> Step:
    needed = barriers([_access(node, layout, parity) for node in graph.nodes], before)
    dispatches = tuple(
        PlannedDispatch(node, parity_regions(layout, node.tensors, parity), barrier)
        for node, barrier in zip(graph.nodes, needed, strict=True)
    )
    return Step(dispatches, tuple(layout.regions[tensor][parity] for tensor in graph.outputs))
