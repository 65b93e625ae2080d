"""Plans: the dispatches of each graph's step, for even and for odd steps, with their barriers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from vkcat.graph import Graph, Node, Role, Tensor
from vkcat.plan.hazards import Access, barriers
from vkcat.plan.layout import BufferSpec, Layout, Packing, Region, lay_out, parity_regions


@dataclass(frozen=True)
class PlannedDispatch:
    """One dispatch; `barrier` is None, or the written regions that must be visible before it."""

    node: Node
    regions: tuple[Region, ...]
    barrier: tuple[Region, ...] | None


@dataclass(frozen=True)
class Step:
    """The dispatches of one step in order, and the regions the host reads after it."""

    dispatches: tuple[PlannedDispatch, ...]
    to_host: tuple[Region, ...]


@dataclass(frozen=True)
class Plan:
    """Buffers, where each tensor lies in even and odd steps, and each graph's two steps."""

    buffers: tuple[BufferSpec, ...]
    regions: dict[Tensor, tuple[Region, Region]]
    steps: dict[str, tuple[Step, Step]]


def schedule(graphs: Iterable[Graph], packing: Packing) -> Plan:
    """Plan the steps of `graphs`, which share weights and states and may follow each other in any order.

    Every step moves all states to their other slot: a state that a graph does not carry is undefined after it.
    Raises `DeviceError` when a tensor does not fit, `ValueError` when a state is read but not carried.
    """
    graphs = list(graphs)
    for graph in graphs:
        for tensor in graph.tensors():
            if tensor.role is Role.STATE and tensor not in graph.carries:
                raise ValueError(f"{graph.name}: state {tensor.name} is used but not carried to the next step")
    layout = lay_out(graphs, packing)
    before = _left_unordered(graphs, layout)
    steps = {graph.name: (_step(graph, layout, before, 0), _step(graph, layout, before, 1)) for graph in graphs}
    return Plan(tuple(layout.buffers), layout.regions, steps)


def _access(node: Node, layout: Layout, parity: int) -> Access:
    return (
        [layout.regions[tensor][parity] for tensor in node.reads],
        [layout.regions[tensor][parity] for tensor in node.writes],
    )


def _left_unordered(graphs: list[Graph], layout: Layout) -> Access:
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
