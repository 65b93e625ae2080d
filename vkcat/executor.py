"""Run plans on a device: buffers, prepared dispatches, and what the host writes and reads between steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from vkcat.device.interface import Barrier, Buffer, Command, Device, Dispatch, Memory, Slice, ToHost
from vkcat.errors import DeviceError, InputError, mismatch
from vkcat.graph import Graph, Node, Role, Tensor
from vkcat.parameters import Parameters, chosen_tiling, parameters
from vkcat.plan import BufferSpec, Packing, Plan, PlannedDispatch, Region, Step, schedule
from vkcat.schedules import RUNNERS, Commands, HostTimes, Runner
from vkcat.shader import Shader, load
from vkcat.tiling import Tiling

Array = NDArray[Any]

PADDING: dict[type[np.unsignedinteger[Any]], int] = {np.uint32: 0x7FC00000, np.uint16: 0x7E00}
"""What the host leaves in the padding of rows: a quiet NaN."""

P = ParamSpec("P")
R = TypeVar("R")


class Steps(Protocol):
    """What a session needs of whatever runs its graphs: a device or the reference."""

    def write(self, tensor: Tensor, values: Array) -> None: ...

    def step(self, graph: str) -> None: ...

    def chunk(self, graph: str) -> int: ...

    def launch(self, graph: str, count: int) -> None: ...

    def finish(self) -> None: ...

    def read(self, tensor: Tensor) -> Array: ...

    def read_state(self, tensor: Tensor) -> Array: ...

    def close(self) -> None: ...


def _exclusive(method: Callable[Concatenate[Executor, P], R]) -> Callable[Concatenate[Executor, P], R]:
    """A method that has the device for its thread alone, and finds it open."""

    @wraps(method)
    def locked(self: Executor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.device.lock:
            self.device.check_open()
            if self._closed:
                raise DeviceError(mismatch("executor", "one that is open", "one that has been closed"))
            return method(self, *args, **kwargs)

    return locked


class Executor:
    """Graphs planned and prepared on a device.

    `shaders` replaces shaders by name, `tiling` how products are shared out. With `timestamps` there is `timed_step` as
    well.

    Executors on one device may be used from several threads, each executor from one at a time. Raises `DeviceError`
    when something does not fit the device, or the device or executor has been closed.
    """

    def __init__(
        self,
        device: Device,
        graphs: Sequence[Graph],
        schedule_name: str = "replay",
        *,
        timestamps: bool = False,
        shaders: Mapping[str, Shader] | None = None,
        packing: Packing | None = None,
        tiling: Callable[[Node], Tiling] | None = None,
    ) -> None:
        if schedule_name not in RUNNERS:
            raise InputError(mismatch("schedule", f"one of {', '.join(RUNNERS)}", repr(schedule_name)))
        self.device = device
        self._closed = False
        self.plan: Plan = schedule(graphs, packing or device_packing(device))
        self._tiling = tiling or (lambda node: chosen_tiling(node, device.info))
        self._parity = 0
        self._written: dict[Tensor, int] = {}
        self._views: tuple[dict[Tensor, Array], dict[Tensor, Array]] = ({}, {})
        with device.lock, ExitStack() as made:
            device.check_open()
            self._made = made
            # Odd steps run what even ones do.
            nodes = [planned.node for even, _ in self.plan.steps.values() for planned in even.dispatches]
            given = {node: self._given(node, shaders or {}) for node in nodes}
            device.prepare((shader, numbers.spec) for shader, numbers in given.values())
            self._buffers = [self._buffer(spec) for spec in self.plan.buffers]
            self._dispatches: dict[tuple[Node, tuple[Region, ...]], Dispatch] = {}
            self._commands = {
                name: (self._prepare(even, given), self._prepare(odd, given))
                for name, (even, odd) in self.plan.steps.items()
            }
            self._run = self._runner(schedule_name, timestamps=False)
            self._run_timed = self._runner(schedule_name, timestamps=True) if timestamps else None
            # Made whole: from here on only close() releases it.
            self._made = made.pop_all()

    def _buffer(self, spec: BufferSpec) -> Buffer:
        buffer = self.device.buffer(spec.nbytes, spec.memory)
        self._made.callback(buffer.close)
        return buffer

    def _runner(self, name: str, *, timestamps: bool) -> Runner:
        runner = RUNNERS[name](self.device, self._commands, timestamps=timestamps)
        self._made.callback(runner.close)
        return runner

    @property
    def host_times(self) -> HostTimes:
        """What the host spent on the last `step`, or on the last `launch` and `finish`."""
        return self._run.times

    @property
    def commands(self) -> Commands:
        return self._commands

    def _slice(self, region: Region) -> Slice:
        return Slice(self._buffers[region.buffer], region.offset, region.size)

    def _slices(self, regions: Sequence[Region]) -> tuple[Slice, ...]:
        return tuple(self._slice(region) for region in regions)

    def _prepare(self, step: Step, given: Mapping[Node, tuple[Shader, Parameters]]) -> list[Command]:
        commands: list[Command] = []
        for planned in step.dispatches:
            if planned.barrier is not None:
                commands.append(Barrier(self._slices(planned.barrier)))
            commands.append(self._dispatch(planned, *given[planned.node]))
        if step.to_host:
            commands.append(ToHost(self._slices(step.to_host)))
        return commands

    def _given(self, node: Node, shaders: Mapping[str, Shader]) -> tuple[Shader, Parameters]:
        """The shader of a node, and what it is given besides tensors. Raises `ShaderError` when it does not fit."""
        shader = shaders.get(node.shader) or load(node.shader)
        return shader, parameters(node, shader, self._tiling(node))

    def _dispatch(self, planned: PlannedDispatch, shader: Shader, given: Parameters) -> Dispatch:
        """Even and odd steps share one where it has no slots to tell apart: kompute compiles a pipeline for each."""
        key = planned.node, planned.regions
        if key not in self._dispatches:
            name, slices = planned.node.kernel.name, self._slices(planned.regions)
            dispatch = self.device.dispatch(name, shader, slices, given.push, given.spec, given.groups)
            self._made.callback(self.device.release, dispatch)
            self._dispatches[key] = dispatch
        return self._dispatches[key]

    def _view(self, tensor: Tensor, parity: int, memory: Memory) -> Array | None:
        """The live elements of a tensor without the padding, when it lies in this kind of mapped memory."""
        view = self._views[parity].get(tensor)
        if view is None:
            region = self.plan.regions[tensor][parity]
            if self.plan.buffers[region.buffer].memory is not memory:
                return None
            words = self._buffers[region.buffer].mapped[region.offset // 4 :][: tensor.nbytes // 4]
            rows = words.view(tensor.dtype).reshape(*tensor.shape[:-1], tensor.pitch)
            view = self._views[parity][tensor] = rows[..., : tensor.shape[-1]]
        return view

    @_exclusive
    def write(self, tensor: Tensor, values: Array) -> None:
        """Set a weight, an input or a state; an input keeps its values until it is written again.

        A weight that no graph reads has no place and is passed over. Raises `InputError` for another shape or dtype.
        """
        if tensor.role is Role.WEIGHT and tensor not in self.plan.regions:
            return
        view = self._view(tensor, self._parity, Memory.UPLOAD)
        if view is not None and view.shape == values.shape and view.dtype == values.dtype:
            view[...] = values
            self._written[tensor] = self._parity
            return
        if values.shape != tensor.shape or values.dtype != tensor.dtype:
            expected, got = f"{tensor.dtype} {tensor.shape}", f"{values.dtype} {values.shape}"
            raise InputError(mismatch(tensor.name, expected, got))
        region = self.plan.regions[tensor][self._parity]
        self._buffers[region.buffer].write(padded(tensor, np.ascontiguousarray(values)), region.offset)

    @_exclusive
    def read(self, tensor: Tensor) -> Array:
        """What the last step left in a tensor; for one that is not an output, through a copy."""
        parity = 1 - self._parity
        view = self._view(tensor, parity, Memory.READBACK)
        return view.copy() if view is not None else self._copied(tensor, parity)

    @_exclusive
    def read_state(self, tensor: Tensor) -> Array:
        """What the next step will find in a state or a memory."""
        return self._copied(tensor, self._parity)

    def _copied(self, tensor: Tensor, parity: int) -> Array:
        region = self.plan.regions[tensor][parity]
        words = self._buffers[region.buffer].read(tensor.nbytes, region.offset)
        rows = words.view(tensor.dtype).reshape(*tensor.shape[:-1], tensor.pitch)
        return np.ascontiguousarray(rows[..., : tensor.shape[-1]])

    @_exclusive
    def fill(self, word: int) -> None:
        """Set every word of every buffer, guards and padding included."""
        for buffer in self._buffers:
            buffer.write(np.full(buffer.nbytes // 4, word, np.uint32))

    @_exclusive
    def fill_tensor(self, tensor: Tensor, word: int) -> None:
        """Set every word that a tensor's descriptor covers in the next step, guard and padding included."""
        region = self.plan.regions[tensor][self._parity]
        self._buffers[region.buffer].write(np.full(region.size // 4, word, np.uint32), region.offset)

    @_exclusive
    def words(self) -> list[NDArray[np.uint32]]:
        """All words of each buffer."""
        return [buffer.read(buffer.nbytes) for buffer in self._buffers]

    def element_words(self, tensor: Tensor, words: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
        """A view of those words of `words()` that are elements of a tensor in the last step, padding left out."""
        region = self.plan.regions[tensor][1 - self._parity]
        rows = words[region.buffer][region.offset // 4 :][: tensor.nbytes // 4]
        return rows.reshape(*tensor.shape[:-1], tensor.pitch)[..., : tensor.shape[-1]]

    @_exclusive
    def step(self, graph: str) -> None:
        """Run one step of a graph and wait for it."""
        self._advance(self._run, graph)

    @_exclusive
    def chunk(self, graph: str) -> int:
        """How many steps of a graph to launch at a time; see vkcat/schedules.py."""
        return self._run.chunk(graph)

    @_exclusive
    def launch(self, graph: str, count: int) -> None:
        """Begin some steps of a graph. Nothing but `launch` and `finish` may follow until all have finished."""
        if self._written:
            self.settle_inputs()
        self._run.launch(graph, self._parity, count)
        self._parity ^= count & 1

    @_exclusive
    def finish(self) -> None:
        """Wait for the oldest launch."""
        self._run.finish()

    @_exclusive
    def timed_step(self, graph: str) -> list[float]:
        """As `step`, with timestamps around each dispatch; returns their nanoseconds."""
        assert self._run_timed is not None, "made without timestamps"
        self._advance(self._run_timed, graph)
        return self._run_timed.kernel_ns()

    def _advance(self, run: Runner, graph: str) -> None:
        run(graph, self._parity)
        self._parity ^= 1
        if self._written:
            self.settle_inputs()

    @_exclusive
    def settle_inputs(self) -> None:
        """Give the inputs' other slot what was written to one; no step may be running."""
        for tensor, parity in self._written.items():
            source = self._view(tensor, parity, Memory.UPLOAD)
            target = self._view(tensor, 1 - parity, Memory.UPLOAD)
            assert source is not None
            assert target is not None
            target[...] = source
        self._written.clear()

    def close(self) -> None:
        """Release recordings, then dispatches, then buffers. A second call does nothing."""
        with self.device.lock:
            if not self._closed:
                self._closed = True
                for views in self._views:
                    views.clear()
                self._made.close()


def padded(tensor: Tensor, values: Array) -> NDArray[np.uint32]:
    """The words of a tensor's rows.

    A shader that lets padding count shows it: NaN, or an index past every table.
    """
    if tensor.pitch == tensor.shape[-1]:
        return values.reshape(-1).view(np.uint32)
    word = np.uint32 if values.dtype.itemsize == 4 else np.uint16
    rows = np.full((*tensor.shape[:-1], tensor.pitch), PADDING[word], word)
    rows[..., : tensor.shape[-1]] = values.view(word)
    return rows.view(np.uint32)


def device_packing(device: Device) -> Packing:
    """How tensors are packed for a device."""
    limits = device.info.limits
    return Packing(
        alignment=max(limits.min_storage_buffer_offset_alignment, 64),
        max_buffer=limits.max_memory_allocation_size,
        offsets=device.offsets,
    )
