"""Run plans on a device: buffers, prepared dispatches, and what the host writes and reads between steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from vkcat.command_lists import command_lists, new_buffers
from vkcat.device.interface import Buffer, Command, Device, Memory
from vkcat.errors import DeviceError, InputError, mismatch
from vkcat.graph import Graph, Node, Role, Tensor
from vkcat.parameters import Parameters, chosen_tiling, panel_rows, parameters, shader_names
from vkcat.plan import Packing, Plan, schedule
from vkcat.schedules import RUNNERS, SUBMIT_LIMIT_MS, Commands, HostTimes, Runner
from vkcat.shader import Shader, load
from vkcat.tiling import Tiling
from vkcat.words import device_words, from_panels

Array = NDArray[Any]

P = ParamSpec("P")
R = TypeVar("R")

Values = Mapping[Tensor, Array]
"""What is set once: weights and constants."""


class Steps(Protocol):
    """What a session needs of whatever runs its graphs: a device or the reference."""

    def add(self, graphs: Sequence[Graph], values: Values | None = None) -> None: ...

    def write(self, tensor: Tensor, values: Array) -> None: ...

    def step(self, graph: str) -> None: ...

    def chunk(self, graph: str) -> int: ...

    def overlaps(self, graph: str) -> bool: ...

    def launch(self, graph: str, count: int) -> None: ...

    def finish(self) -> None: ...

    def read(self, tensor: Tensor) -> Array: ...

    def read_state(self, tensor: Tensor) -> Array: ...

    def check_usable(self) -> None: ...

    def close(self) -> None: ...


def _exclusive(method: Callable[Concatenate[Executor, P], R]) -> Callable[Concatenate[Executor, P], R]:
    """A method that has the device for its thread alone, and finds it open and whatever ran before ended well."""

    @wraps(method)
    def locked(self: Executor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with self.device.lock:
            self.check_usable()
            return method(self, *args, **kwargs)

    return locked


def _running(method: Callable[Concatenate[Executor, P], R]) -> Callable[Concatenate[Executor, P], R]:
    """A method that changes what the device holds: when Vulkan fails in it, nobody knows what is there."""

    @wraps(method)
    def whole(self: Executor, /, *args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(self, *args, **kwargs)
        except DeviceError as error:
            self._failed = self._failed or type(error).__name__
            raise

    return _exclusive(whole)


class Executor:
    """Graphs planned and prepared on a device.

    `values` are written while the driver compiles. `submit_limit_ms` is how long a submission of many steps may take.
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
        values: Values | None = None,
        timestamps: bool = False,
        submit_limit_ms: float = SUBMIT_LIMIT_MS,
        shaders: Mapping[str, Shader] | None = None,
        packing: Packing | None = None,
        tiling: Callable[[Node], Tiling] | None = None,
    ) -> None:
        if schedule_name not in RUNNERS:
            raise InputError(mismatch("schedule", f"one of {', '.join(RUNNERS)}", repr(schedule_name)))
        self.device = device
        self._closed = False
        # What ended a step before it was done.
        self._failed = ""
        self._make_runner = partial(RUNNERS[schedule_name], device, submit_limit_ms=submit_limit_ms)
        self._timestamps = timestamps
        self._shaders = shaders or {}
        packing = packing or device_packing(device)
        # A shader that is not ours finds matrices row by row.
        self._packing = replace(packing, panel=1) if shaders else packing
        self._tiling = tiling or (lambda node: chosen_tiling(node, device.info))
        self._parity = 0
        self._written: dict[Tensor, int] = {}
        self._views: tuple[dict[Tensor, Array], dict[Tensor, Array]] = ({}, {})
        self.plan = Plan()
        self._buffers: list[Buffer] = []
        self._commands: dict[str, tuple[list[Command], list[Command]]] = {}
        # By graph; those that time its dispatches are the same where that is not asked for.
        self._runners: dict[str, Runner] = {}
        self._timed: dict[str, Runner] = {}
        self._last: Runner | None = None
        self._made = ExitStack()
        self._add(graphs, values or {})

    def check_usable(self) -> None:
        """Raises `DeviceError` when the device or this was closed or lost, or a step was cut short."""
        self.device.check_open()
        if self._closed:
            raise DeviceError(mismatch("executor", "one that is open", "one that has been closed"))
        if self._failed:
            remedy = "make it anew, and go on from a saved state"
            raise DeviceError(mismatch("executor", "one whose last step was done", self._failed, remedy))

    @_exclusive
    def add(self, graphs: Sequence[Graph], values: Values | None = None) -> None:
        """Plan and prepare more graphs, which may share tensors with those there are: all go on as they stand.

        `values` are of tensors that no graph before has. No launch may be unfinished. When one does not fit, everything
        is as it was.
        """
        self._add(graphs, values or {})

    def _add(self, graphs: Sequence[Graph], values: Values) -> None:
        device = self.device
        plan = schedule(graphs, self._packing, self.plan)
        # Odd steps run what even ones do.
        nodes = [planned.node for graph in graphs for planned in plan.steps[graph.name][0].dispatches]
        with device.lock, ExitStack() as made:
            device.check_open()
            given = {node: self._given(node, plan) for node in nodes}
            with device.compiling((shader, numbers.spec) for shader, numbers in given.values()):
                buffers = [*self._buffers, *new_buffers(device, plan, len(self._buffers), made)]
                for tensor, array in values.items():
                    self._store(plan, buffers, tensor, array)
            commands = command_lists(device, plan, graphs, buffers, given, made)
            plain, timed = self._new_runners(commands, made)
            # Made whole: from here on only close() releases it.
            self._made.callback(made.pop_all().close)
        self.plan, self._buffers = plan, buffers
        self._commands |= commands
        self._runners |= dict.fromkeys(commands, plain)
        self._timed |= dict.fromkeys(commands, timed)

    def _new_runners(self, commands: Commands, made: ExitStack) -> tuple[Runner, Runner]:
        """One as it is and one that times dispatches, or where that was not asked for the same."""
        plain = self._make_runner(commands, timestamps=False)
        made.callback(plain.close)
        if not self._timestamps:
            return plain, plain
        timed = self._make_runner(commands, timestamps=True)
        made.callback(timed.close)
        return plain, timed

    @property
    def host_times(self) -> HostTimes:
        """What the host spent on the last `step`, or on each `launch` and `finish` since none was under way."""
        return self._last.times if self._last is not None else HostTimes()

    @property
    def commands(self) -> Commands:
        return self._commands

    def _given(self, node: Node, plan: Plan) -> tuple[Shader, Parameters]:
        """The shader of a node, and what it is given besides tensors. Raises `ShaderError` when it does not fit."""
        names = shader_names(node.shader, self.device.info)
        shader = next((self._shaders[name] for name in names if name in self._shaders), None) or load(names[0])
        panel = self._packing.panel if plan.paneled & set(node.tensors.values()) else 1
        return shader, parameters(node, shader, self._tiling(node), panel)

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

    @_running
    def write(self, tensor: Tensor, values: Array) -> None:
        """Set a weight, an input or a state; an input keeps its values until it is written again.

        A weight that no graph reads has no place and is passed over. Raises `InputError` for another shape or dtype.
        """
        # Only inputs: of others there may be a view that was made to read them.
        view = self._view(tensor, self._parity, Memory.UPLOAD) if tensor.role is Role.INPUT else None
        if view is not None and view.shape == values.shape and view.dtype == values.dtype:
            # Noted first: a write that is interrupted is not left to one slot alone.
            self._written[tensor] = self._parity
            view[...] = values
            return
        self._store(self.plan, self._buffers, tensor, values)

    def _store(self, plan: Plan, buffers: Sequence[Buffer], tensor: Tensor, values: Array) -> None:
        if tensor.role is Role.WEIGHT and tensor not in plan.regions:
            return
        if values.shape != tensor.shape or values.dtype != tensor.dtype:
            expected, got = f"{tensor.dtype} {tensor.shape}", f"{values.dtype} {values.shape}"
            raise InputError(mismatch(tensor.name, expected, got))
        region = plan.regions[tensor][self._parity]
        panel = self._packing.panel if tensor in plan.paneled else 1
        buffers[region.buffer].write(device_words(tensor, values, panel), region.offset)

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
        if tensor in self.plan.paneled:
            size = self._packing.size(tensor, paneled=True) - self._packing.guard
            words = from_panels(tensor, self._buffers[region.buffer].read(size, region.offset), self._packing.panel)
        else:
            words = self._buffers[region.buffer].read(tensor.nbytes, region.offset)
        rows = words.view(tensor.dtype).reshape(*tensor.shape[:-1], tensor.pitch)
        return np.ascontiguousarray(rows[..., : tensor.shape[-1]])

    @_running
    def fill(self, word: int) -> None:
        """Set every word of every buffer, guards and padding included."""
        for buffer in self._buffers:
            buffer.write(np.full(buffer.nbytes // 4, word, np.uint32))

    @_running
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

    @_running
    def step(self, graph: str) -> None:
        """Run one step of a graph and wait for it."""
        self._advance(self._runners[graph], graph)

    @_exclusive
    def chunk(self, graph: str) -> int:
        """How many steps of a graph to launch at a time; see vkcat/schedules.py."""
        return self._runners[graph].chunk(graph)

    @_exclusive
    def overlaps(self, graph: str) -> bool:
        """Whether steps of a graph may be launched before those launched last have finished."""
        return self._runners[graph].overlaps

    @_running
    def launch(self, graph: str, count: int) -> None:
        """Begin some steps of a graph. Nothing but `launch` and `finish` may follow until all have finished."""
        if self._written:
            self.settle_inputs()
        self._last = self._runners[graph]
        self._last.launch(graph, self._parity, count)
        self._parity ^= count & 1

    @_running
    def finish(self) -> None:
        """Wait for the oldest launch, if there is one."""
        if self._last is not None:
            self._last.finish()

    @_running
    def timed_step(self, graph: str) -> list[float]:
        """As `step`, with timestamps around each dispatch; returns their nanoseconds."""
        assert self._timestamps, "made without timestamps"
        self._advance(self._timed[graph], graph)
        return self._timed[graph].kernel_ns()

    def _advance(self, run: Runner, graph: str) -> None:
        self._last = run
        run(graph, self._parity)
        # Before the turn: a step that is interrupted until then is made again with the inputs it had.
        if self._written:
            self.settle_inputs()
        self._parity ^= 1

    @_running
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


def device_packing(device: Device) -> Packing:
    """How tensors are packed for a device."""
    limits = device.info.limits
    return Packing(
        alignment=max(limits.min_storage_buffer_offset_alignment, 64),
        max_buffer=limits.max_memory_allocation_size,
        offsets=device.offsets,
        panel=panel_rows(device.info),
        max_binding=limits.max_storage_buffer_range,
    )
