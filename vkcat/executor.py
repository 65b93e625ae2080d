"""Run plans on a device, by one of three schedules.

- `eager`: a submit and a wait for each dispatch, recorded each time.
- `batched`: one submit for each step, recorded each time.
- `replay`: recorded once for even and once for odd steps; a step allocates, records and binds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from vkcat.device.interface import Barrier, Command, Device, Dispatch, Memory, Recording, Slice, ToHost
from vkcat.errors import InputError, mismatch
from vkcat.graph import Graph, Tensor
from vkcat.kernel import TILE, check_interface, tile
from vkcat.plan import Packing, Plan, PlannedDispatch, Region, Step, schedule
from vkcat.shader import Shader, load

Array = NDArray[Any]

SCHEDULES = ("eager", "batched", "replay")


class Steps(Protocol):
    """What a session needs of whatever runs its graphs: a device or the reference."""

    def write(self, tensor: Tensor, values: Array) -> None: ...

    def step(self, graph: str) -> None: ...

    def read(self, tensor: Tensor) -> Array: ...

    def close(self) -> None: ...


@dataclass
class HostTimes:
    """Nanoseconds the host spent on the last step, and how often it submitted."""

    record: int = 0
    submit: int = 0
    wait: int = 0
    submits: int = 0


class Executor:
    """Graphs planned and prepared on a device.

    `shaders` replaces shaders by kernel name. With `timestamps` there is `timed_step` as well.

    Raises `DeviceError` when something does not fit the device.
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
    ) -> None:
        self.device = device
        self.plan: Plan = schedule(graphs, packing or device_packing(device))
        self.host_times = HostTimes()
        self._parity = 0
        self._written: dict[Tensor, int] = {}
        self._views: tuple[dict[Tensor, Array], dict[Tensor, Array]] = ({}, {})
        self._buffers = [device.buffer(spec.nbytes, spec.memory) for spec in self.plan.buffers]
        self._commands = {
            name: (self._prepare(even, shaders or {}), self._prepare(odd, shaders or {}))
            for name, (even, odd) in self.plan.steps.items()
        }
        self._run = _RUNNERS[schedule_name](self, False)
        self._run_timed = _RUNNERS[schedule_name](self, True) if timestamps else None

    @property
    def commands(self) -> dict[str, tuple[list[Command], list[Command]]]:
        return self._commands

    def _slice(self, region: Region) -> Slice:
        return Slice(self._buffers[region.buffer], region.offset, region.size)

    def _slices(self, regions: Sequence[Region]) -> tuple[Slice, ...]:
        return tuple(self._slice(region) for region in regions)

    def _prepare(self, step: Step, shaders: Mapping[str, Shader]) -> list[Command]:
        commands: list[Command] = []
        for planned in step.dispatches:
            if planned.barrier is not None:
                commands.append(Barrier(self._slices(planned.barrier)))
            commands.append(self._dispatch(planned, shaders))
        if step.to_host:
            commands.append(ToHost(self._slices(step.to_host)))
        return commands

    def _dispatch(self, planned: PlannedDispatch, shaders: Mapping[str, Shader]) -> Dispatch:
        kernel, sizes = planned.node.kernel, planned.node.sizes
        shader = shaders.get(kernel.name) or load(kernel.name)
        check_interface(kernel, shader)
        interface = shader.interface
        rows = tile(sizes["B"]) if TILE in interface.spec else 1
        push = np.array([sizes[name] for name in interface.push], np.uint32)
        groups = kernel.launch(sizes, rows).groups(interface.local_size)
        spec = [rows] * len(interface.spec)
        return self.device.dispatch(kernel.name, shader, self._slices(planned.regions), push, spec, groups)

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

    def write(self, tensor: Tensor, values: Array) -> None:
        """Set a weight, an input or a state; an input keeps its values until it is written again.

        Raises `InputError` for another shape or dtype.
        """
        view = self._view(tensor, self._parity, Memory.UPLOAD)
        if view is not None and view.shape == values.shape and view.dtype == values.dtype:
            view[...] = values
            self._written[tensor] = self._parity
            return
        if values.shape != tensor.shape or values.dtype != tensor.dtype:
            expected, got = f"{tensor.dtype} {tensor.shape}", f"{values.dtype} {values.shape}"
            raise InputError(mismatch(tensor.name, expected, got))
        rows = np.zeros((*tensor.shape[:-1], tensor.pitch), tensor.dtype)
        rows[..., : tensor.shape[-1]] = values
        region = self.plan.regions[tensor][self._parity]
        self._buffers[region.buffer].write(rows.view(np.uint32), region.offset)

    def read(self, tensor: Tensor) -> Array:
        """What the last step left in a tensor; for one that is not an output, through a copy."""
        parity = 1 - self._parity
        view = self._view(tensor, parity, Memory.READBACK)
        if view is not None:
            return view.copy()
        region = self.plan.regions[tensor][parity]
        words = self._buffers[region.buffer].read(tensor.nbytes, region.offset)
        rows = words.view(tensor.dtype).reshape(*tensor.shape[:-1], tensor.pitch)
        return np.ascontiguousarray(rows[..., : tensor.shape[-1]])

    def fill(self, word: int) -> None:
        """Set every word of every buffer, guards and padding included."""
        for buffer in self._buffers:
            buffer.write(np.full(buffer.nbytes // 4, word, np.uint32))

    def fill_tensor(self, tensor: Tensor, word: int) -> None:
        """Set every word that a tensor's descriptor covers in the next step, guard and padding included."""
        region = self.plan.regions[tensor][self._parity]
        self._buffers[region.buffer].write(np.full(region.size // 4, word, np.uint32), region.offset)

    def words(self) -> list[NDArray[np.uint32]]:
        """All words of each buffer."""
        return [buffer.read(buffer.nbytes) for buffer in self._buffers]

    def element_words(self, tensor: Tensor, words: list[NDArray[np.uint32]]) -> NDArray[np.uint32]:
        """A view of those words of `words()` that are elements of a tensor in the last step, padding left out."""
        region = self.plan.regions[tensor][1 - self._parity]
        rows = words[region.buffer][region.offset // 4 :][: tensor.nbytes // 4]
        return rows.reshape(*tensor.shape[:-1], tensor.pitch)[..., : tensor.shape[-1]]

    def step(self, graph: str) -> None:
        """Run one step of a graph and wait for it."""
        self._run(graph, self._parity)
        self._parity ^= 1
        if self._written:
            self.settle_inputs()

    def timed_step(self, graph: str) -> list[float]:
        """As `step`, with timestamps around each dispatch; returns their nanoseconds."""
        assert self._run_timed is not None, "made without timestamps"
        self._run_timed(graph, self._parity)
        self._parity ^= 1
        if self._written:
            self.settle_inputs()
        return self._run_timed.kernel_ns()

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
        """Release recordings, then buffers."""
        self._run.close()
        if self._run_timed is not None:
            self._run_timed.close()
        for views in self._views:
            views.clear()
        for buffer in self._buffers:
            buffer.close()


def device_packing(device: Device) -> Packing:
    """How tensors are packed for a device."""
    limits = device.info.limits
    return Packing(
        alignment=max(limits.min_storage_buffer_offset_alignment, 64),
        max_buffer=limits.max_memory_allocation_size,
        offsets=device.offsets,
    )


class _Runner(Protocol):
    def __call__(self, graph: str, parity: int) -> None: ...

    def kernel_ns(self) -> list[float]: ...

    def close(self) -> None: ...


def _submit_and_wait(recording: Recording, times: HostTimes) -> None:
    begin = perf_counter_ns()
    recording.submit()
    submitted = perf_counter_ns()
    recording.wait()
    times.submit += submitted - begin
    times.wait += perf_counter_ns() - submitted
    times.submits += 1


def _record(recording: Recording, commands: Sequence[Command], times: HostTimes) -> None:
    begin = perf_counter_ns()
    recording.record(commands)
    times.record += perf_counter_ns() - begin


class _Eager:
    def __init__(self, executor: Executor, timestamps: bool) -> None:
        self._executor = executor
        self._recording = executor.device.recording(timestamps=timestamps)
        self._pieces = {
            (name, parity): _split(commands)
            for name, both in executor.commands.items()
            for parity, commands in enumerate(both)
        }
        self._kernel_ns: list[float] = []

    def __call__(self, graph: str, parity: int) -> None:
        times = self._executor.host_times = HostTimes()
        self._kernel_ns = []
        for piece in self._pieces[graph, parity]:
            _record(self._recording, piece, times)
            _submit_and_wait(self._recording, times)
            self._kernel_ns += self._recording.kernel_ns()

    def kernel_ns(self) -> list[float]:
        return self._kernel_ns

    def close(self) -> None:
        self._recording.close()


def _split(commands: Sequence[Command]) -> list[list[Command]]:
    """One dispatch a piece, with the barrier before it; what follows the last dispatch stays with it."""
    pieces: list[list[Command]] = [[]]
    for command in commands:
        pieces[-1].append(command)
        if isinstance(command, Dispatch):
            pieces.append([])
    rest = pieces.pop()
    pieces[-1] += rest
    return pieces


class _Batched:
    def __init__(self, executor: Executor, timestamps: bool) -> None:
        self._executor = executor
        self._recording = executor.device.recording(timestamps=timestamps)

    def __call__(self, graph: str, parity: int) -> None:
        times = self._executor.host_times = HostTimes()
        _record(self._recording, self._executor.commands[graph][parity], times)
        _submit_and_wait(self._recording, times)

    def kernel_ns(self) -> list[float]:
        return self._recording.kernel_ns()

    def close(self) -> None:
        self._recording.close()


class _Replay:
    def __init__(self, executor: Executor, timestamps: bool) -> None:
        self._executor = executor
        self._recordings: dict[str, tuple[Recording, Recording]] = {}
        for name, (even, odd) in executor.commands.items():
            pair = (executor.device.recording(timestamps=timestamps), executor.device.recording(timestamps=timestamps))
            for recording, commands in zip(pair, (even, odd), strict=True):
                recording.record(commands)
            self._recordings[name] = pair
        self._last: Recording | None = None

    def __call__(self, graph: str, parity: int) -> None:
        times = self._executor.host_times = HostTimes()
        self._last = self._recordings[graph][parity]
        _submit_and_wait(self._last, times)

    def kernel_ns(self) -> list[float]:
        return self._last.kernel_ns() if self._last else []

    def close(self) -> None:
        for pair in self._recordings.values():
            for recording in pair:
                recording.close()


_RUNNERS: dict[str, Callable[[Executor, bool], _Runner]] = {"eager": _Eager, "batched": _Batched, "replay": _Replay}
