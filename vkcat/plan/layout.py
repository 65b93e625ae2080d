"""Where every tensor lies: which buffer, at which offset.

Tensors that are carried to the next step, set by the host or read by it have two slots, used in turn by even and odd
steps: the host never writes what a running step reads, and a step never overwrites the state it reads. Temporaries of
one step share an arena by their lifetimes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct, field

from vkcat.device.interface import Memory
from vkcat.errors import DeviceError, mismatch
from vkcat.graph import Graph, Role, Tensor
from vkcat.plan.panels import paneled

MAX_BINDING = (1 << 32) - 1
"""Bytes, as maxStorageBufferRange is a number of 32 bits."""


class Region(Struct, frozen=True):
    """Bytes of a buffer, by the buffer's place in the plan's list."""

    buffer: int
    offset: int
    size: int

    def overlaps(self, other: Region) -> bool:
        return (
            self.buffer == other.buffer
            and self.offset < other.offset + other.size
            and other.offset < self.offset + self.size
        )


class BufferSpec(Struct, frozen=True):
    memory: Memory
    nbytes: int


class Packing(Struct, frozen=True):
    """How tensors are put into buffers.

    `offsets`: several may share a buffer (else each has its own). `reuse`: temporaries that do not live at the same
    time may share bytes. `guard`: spare bytes after each tensor, inside what its descriptor covers. `panel`: rows of
    matrices that lie side by side, see vkcat/plan/panels.py. `max_binding`: bytes of a tensor with its guard; what fits
    into that, a shader can count in 32 bits.
    """

    alignment: int
    max_buffer: int
    offsets: bool = True
    reuse: bool = True
    guard: int = 0
    panel: int = 1
    max_binding: int = MAX_BINDING

    def size(self, tensor: Tensor, *, paneled: bool = False) -> int:
        """Bytes of a tensor; one in panels has whole ones."""
        rows = self.aligned_rows(tensor.rows) if paneled else tensor.rows
        return tensor.nbytes // tensor.rows * rows + self.guard

    def aligned_rows(self, rows: int) -> int:
        return -(-rows // self.panel) * self.panel

    def aligned(self, size: int) -> int:
        return -(-size // self.alignment) * self.alignment


class Layout(Struct):
    """Buffers, the region of each tensor in even and in odd steps, and the matrices that lie in panels."""

    buffers: list[BufferSpec] = field(default_factory=list)
    regions: dict[Tensor, tuple[Region, Region]] = field(default_factory=dict)
    paneled: set[Tensor] = field(default_factory=set)


def lay_out(graphs: Iterable[Graph], packing: Packing, before: Layout) -> Layout:
    """Place every tensor of `graphs` that has no place in `before` yet.

    Raises `DeviceError` when one does not fit, `ValueError` when a matrix would have to lie otherwise than it does.
    """
    graphs = list(graphs)
    layout = Layout(list(before.buffers), dict(before.regions), paneled(graphs, packing.panel))
    if moved := {tensor for tensor in _unique(graphs) if tensor in before.regions and _moved(tensor, layout, before)}:
        raise ValueError(f"matrices that lie otherwise already: {sorted(tensor.name for tensor in moved)}")
    layout.paneled |= before.paneled
    successors = {new: state for graph in graphs for state, new in graph.carries.items()}
    readable = {tensor for graph in graphs for tensor in graph.outputs}
    readable |= {successors[tensor] for tensor in readable & successors.keys()}
    packer = _Packer(layout, packing)
    for tensor in _unique(graphs):
        if tensor in successors or tensor in layout.regions:
            continue
        if tensor.role in (Role.WEIGHT, Role.MEMORY):
            region = packer.place(tensor, Memory.READBACK if tensor in readable else Memory.DEVICE)
            layout.regions[tensor] = (region, region)
        elif tensor.role is Role.INPUT:
            layout.regions[tensor] = (packer.place(tensor, Memory.UPLOAD), packer.place(tensor, Memory.UPLOAD))
        elif tensor.role is Role.STATE or tensor in readable:
            memory = Memory.READBACK if tensor in readable else Memory.DEVICE
            layout.regions[tensor] = (packer.place(tensor, memory), packer.place(tensor, memory))
    for new, state in successors.items():
        even, odd = layout.regions[state]
        layout.regions[new] = (odd, even)
    packer.finish()
    _place_temporaries(graphs, layout, packing)
    _check_bindings(graphs, layout, packing)
    return layout


def _check_bindings(graphs: Sequence[Graph], layout: Layout, packing: Packing) -> None:
    for tensor in _unique(graphs):
        size = layout.regions[tensor][0].size
        if size > packing.max_binding:
            raise DeviceError(mismatch(tensor.name, f"at most {packing.max_binding} bytes in one binding", size))


def _moved(tensor: Tensor, layout: Layout, before: Layout) -> bool:
    return (tensor in layout.paneled) != (tensor in before.paneled)


def _unique(graphs: Sequence[Graph]) -> list[Tensor]:
    """Tensors once each; a state comes before its successor."""
    order: dict[Tensor, None] = {}
    for graph in graphs:
        order.update(dict.fromkeys(graph.carries))
        order.update(dict.fromkeys(graph.tensors()))
    return list(order)


class _Packer:
    """Puts tensors one behind the other, one open buffer for each kind of memory."""

    def __init__(self, layout: Layout, packing: Packing) -> None:
        self._layout = layout
        self._packing = packing
        self._open: dict[Memory, tuple[int, int]] = {}

    def place(self, tensor: Tensor, memory: Memory) -> Region:
        packing, buffers = self._packing, self._layout.buffers
        size = packing.size(tensor, paneled=tensor in self._layout.paneled)
        if size + packing.guard > packing.max_buffer:
            raise DeviceError(mismatch(tensor.name, f"at most {packing.max_buffer} bytes in one buffer", size))
        if not packing.offsets:
            buffers.append(BufferSpec(memory, size))
            return Region(len(buffers) - 1, 0, size)
        index, end = self._open.get(memory, (-1, packing.max_buffer))
        if end + size > packing.max_buffer:
            self._close(memory)
            # The first tensor of a buffer has its guard in front of it too.
            index, end = len(buffers), packing.aligned(packing.guard)
            buffers.append(BufferSpec(memory, 0))
        self._open[memory] = (index, packing.aligned(end + size))
        return Region(index, end, size)

    def _close(self, memory: Memory) -> None:
        if memory in self._open:
            index, end = self._open.pop(memory)
            self._layout.buffers[index] = BufferSpec(memory, end)

    def finish(self) -> None:
        for memory in list(self._open):
            self._close(memory)


def _place_temporaries(graphs: Sequence[Graph], layout: Layout, packing: Packing) -> None:
    if not packing.offsets or not packing.reuse:
        packer = _Packer(layout, packing)
        for tensor in _unique(graphs):
            if tensor not in layout.regions:
                region = packer.place(tensor, Memory.DEVICE)
                layout.regions[tensor] = (region, region)
        packer.finish()
        return
    arena = len(layout.buffers)
    # Graphs never run at the same time, so each starts at the arena's beginning.
    end = max((_pack_by_lifetime(graph, layout.regions, packing, arena) for graph in graphs), default=0)
    if end > packing.max_buffer:
        raise DeviceError(mismatch("temporaries of a step", f"at most {packing.max_buffer} bytes in one buffer", end))
    if end:
        layout.buffers.append(BufferSpec(Memory.DEVICE, end))


def _pack_by_lifetime(graph: Graph, regions: dict[Tensor, tuple[Region, Region]], packing: Packing, arena: int) -> int:
    """First fit in the order of first use; returns the bytes needed."""
    last_use = {tensor: at for at, node in enumerate(graph.nodes) for tensor in node.tensors.values()}
    live: list[tuple[int, Region]] = []
    end = 0
    for at, node in enumerate(graph.nodes):
        live = [(last, region) for last, region in live if last >= at]
        for tensor in node.tensors.values():
            if tensor in regions:
                continue
            size = packing.size(tensor)
            region = Region(arena, _first_gap([taken for _, taken in live], size, packing), size)
            regions[tensor] = (region, region)
            live.append((last_use[tensor], region))
            end = max(end, packing.aligned(region.offset + size))
    return end


def _first_gap(taken: Sequence[Region], size: int, packing: Packing) -> int:
    at = 0
    for region in sorted(taken, key=lambda region: region.offset):
        if at + size <= region.offset:
            break
        at = max(at, packing.aligned(region.offset + region.size))
    return at


def parity_regions(layout: Layout, tensors: Mapping[str, Tensor], parity: int) -> tuple[Region, ...]:
    """Regions of a node's tensors, in binding order, in steps of one parity."""
    return tuple(layout.regions[tensor][parity] for tensor in tensors.values())
