"""A model's generate graph as plain calls over whole tensors: what a program without a scheduler would play.

vkcat's executor prepares the graph on a device that only writes down what it is told, so that shaders, push constants,
specialisation and group counts are exactly those that vkcat runs. Barriers are left out: whoever plays the calls orders
them in its own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.scene import Scene
from vkcat.device import vulkan
from vkcat.device.interface import Command, DeviceInfo, Dispatch, Memory, Slice, Words
from vkcat.device.lifetime import Lifetime
from vkcat.device.limits import check_dispatch, check_shader
from vkcat.device.select import select
from vkcat.executor import Executor
from vkcat.flights import GRAPH
from vkcat.graph import Role
from vkcat.model.stream import StreamModel
from vkcat.ops.gates import STEP
from vkcat.parameters import panel_rows
from vkcat.plan import Packing
from vkcat.shader import Shader
from vkcat.states import SavedState
from vkcat.stored import StoredModel

Array = NDArray[Any]


@dataclass(frozen=True)
class Call:
    """One dispatch. `buffers` are places in the program's list, by binding."""

    shader: Shader
    buffers: tuple[int, ...]
    push: Words
    spec: tuple[int, ...]
    groups: tuple[int, int, int]


@dataclass(frozen=True)
class Program:
    """`buffers` are the words of each tensor before the first step, which is an even one; `steps` the calls of an even
    and of an odd step. `history` is the buffer that the drawn tokens lie in, `logits` those that an even and an odd
    step leave their logits in.
    """

    model: StreamModel
    buffers: list[Words]
    steps: tuple[list[Call], list[Call]]
    history: int
    logits: tuple[int, int]

    def tokens_at(self, history: Words, position: int) -> Array:
        """The tokens (B) drawn as number `position` of each stream, from the words of the history."""
        assert self.model.history is not None
        rows = history.reshape(self.model.batch, self.model.history.pitch)
        return rows[:, position % self.model.history.shape[1]].copy()

    def logits_in(self, words: Words) -> Array:
        """(B, V) from the words of one of the buffers `logits`."""
        output = self.model.outputs[GRAPH]
        return words.view(np.float32).reshape(self.model.batch, output.pitch)[:, : self.model.width].copy()


class _Buffer:
    """A tensor's words on the host."""

    def __init__(self, nbytes: int) -> None:
        self.mapped: Words = np.zeros(nbytes // 4, np.uint32)

    @property
    def nbytes(self) -> int:
        return self.mapped.nbytes

    def write(self, words: Words, offset: int = 0) -> None:
        self.mapped[offset // 4 : offset // 4 + words.size] = words.ravel()

    def read(self, nbytes: int, offset: int = 0) -> Words:
        return self.mapped[offset // 4 : (offset + nbytes) // 4].copy()

    def close(self) -> None:
        """The words are kept: they are the program's."""


class _NoRecording:
    def record(self, commands: Sequence[Command]) -> None:
        raise NotImplementedError("what is written down is not run")

    def submit(self) -> None:
        raise NotImplementedError("what is written down is not run")

    def wait(self) -> None:
        raise NotImplementedError("what is written down is not run")

    def kernel_ns(self) -> list[float]:
        return []

    def ticks(self) -> list[tuple[int, int]]:
        return []

    def close(self) -> None:
        """There is nothing to release."""


class _Notes(Lifetime):
    """A device that writes down buffers and dispatches. See `vkcat.device.interface.Device`."""

    backend = "notes"
    offsets = False
    rewrites = False
    separate_wait = False
    timestamps = False
    lost = False

    def __init__(self, info: DeviceInfo) -> None:
        super().__init__(info)
        self.buffers: list[_Buffer] = []

    def calibrated_timestamps(self) -> None:
        return None

    def buffer(self, nbytes: int, memory: Memory) -> _Buffer:
        del memory
        self.buffers.append(_Buffer(nbytes))
        return self.buffers[-1]

    def compiling(self, shaders: Iterable[tuple[Shader, Sequence[int]]]) -> AbstractContextManager[None]:
        """There is nothing to make."""
        return nullcontext()

    def dispatch(
        self,
        name: str,
        shader: Shader,
        slices: Sequence[Slice],
        push: Words,
        spec: Sequence[int],
        groups: tuple[int, int, int],
    ) -> Dispatch:
        check_shader(shader, spec, self.info)
        check_dispatch(name, shader, slices, push, groups, self.info)
        places = {id(buffer): at for at, buffer in enumerate(self.buffers)}
        call = Call(shader, tuple(places[id(part.buffer)] for part in slices), push, tuple(spec), groups)
        return Dispatch.of(name, shader, slices, call)

    def release(self, dispatch: Dispatch) -> None:
        """There is nothing to release."""

    def recording(self, *, timestamps: bool = False) -> _NoRecording:
        del timestamps
        return _NoRecording()

    def _forget(self) -> None:
        """Memory alone."""

    def _release(self) -> None:
        """There is nothing to release."""


def physical_device(wanted: str | None) -> DeviceInfo:
    """The device that vkcat would open. Raises `DeviceError`."""
    return select(vulkan.devices(), wanted)[0]


def write_start(executor: Executor, model: StreamModel, stored: StoredModel, start: SavedState) -> None:
    """Weights, states, and inputs that draw the likeliest token, before an executor's first step."""
    values = model.values(stored.weights) | {model.mode: np.full(model.batch, STEP, np.uint32)}
    for tensor in model.graphs[GRAPH].tensors():
        if tensor.role is Role.INPUT and tensor not in values:
            values[tensor] = np.zeros(tensor.shape, tensor.dtype)
    assert model.logits is not None
    values |= {tensor: start.kept[name] for name, tensor in model.shared.kept.items()} | {model.logits: start.outputs}
    used = {*model.graphs[GRAPH].tensors(), *model.graphs[GRAPH].carries}
    for tensor, array in values.items():
        if tensor in used:
            executor.write(tensor, array)
    executor.settle_inputs()


def program(scene: Scene, device: DeviceInfo) -> Program:
    """The scene's graph as calls, at its start."""
    stored = scene.stored
    model = scene.graphs(stored)
    notes = _Notes(device)
    packing = Packing(
        alignment=4,
        max_buffer=device.limits.max_memory_allocation_size,
        offsets=False,
        reuse=False,
        panel=panel_rows(device),
    )
    with closing(Executor(notes, [model.graphs[GRAPH]], "batched", packing=packing)) as executor:
        write_start(executor, model, stored, scene.start(stored))
        even, odd = (
            [command.prepared for command in commands if isinstance(command, Dispatch)]
            for commands in executor.commands[GRAPH]
        )
        assert model.history is not None
        regions = executor.plan.regions
        first, second = regions[model.outputs[GRAPH]]
        return Program(
            model=model,
            buffers=[buffer.mapped for buffer in notes.buffers],
            steps=(even, odd),
            history=regions[model.history][0].buffer,
            logits=(first.buffer, second.buffer),
        )
