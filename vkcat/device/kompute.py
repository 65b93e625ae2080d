"""The `kompute` backend: the same plans and shaders through PyPI `kp`.

What Kompute's Python layer leaves to its caller is done here. It has no compute-to-compute barrier, so every written
tensor goes through `OpTensorSyncLocal` before its readers and at most once a sequence; it checks no limit, so vkcat
does before it; a tensor is a whole buffer, so the plan uses no offsets; and it crashes without a driver or when things
are destroyed in another order, so devices are probed first and destruction is ordered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import numpy as np
from msgspec import Struct

from vkcat.device import vulkan
from vkcat.device.interface import Barrier, Command, DeviceInfo, Dispatch, Memory, Slice, Words
from vkcat.device.kompute_calls import Proof, calling, kp, numbered
from vkcat.device.lifetime import Lifetime, check_owned
from vkcat.device.limits import check_dispatch, check_shader
from vkcat.device.select import select
from vkcat.errors import DeviceError, mismatch
from vkcat.shader import Shader

# kp counts a tensor's bytes in 32 bits.
MAX_TENSOR_BYTES = (1 << 32) - 4


class KomputeBuffer:
    """A kp tensor of words. DEVICE and READBACK ones have a staging copy that the host maps; UPLOAD ones are mapped."""

    def __init__(self, device: KomputeDevice, nbytes: int, memory: Memory) -> None:
        if nbytes > min(MAX_TENSOR_BYTES, device.info.limits.max_memory_allocation_size):
            raise DeviceError(mismatch("a kompute tensor", "a size the device can allocate", f"{nbytes} bytes"))
        self._device = device
        self._nbytes = nbytes
        self._memory = memory
        kinds = kp().TensorTypes
        kind = kinds.host if memory is Memory.UPLOAD else kinds.device
        with calling(f"a kompute tensor of {nbytes} bytes"):
            self.tensor = device.manager.tensor_t(np.zeros(nbytes // 4, np.uint32), tensor_type=kind)
        device.own_tensor(self)

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def mapped(self) -> Words:
        """Live words: of the tensor itself for UPLOAD, of its staging copy for READBACK."""
        self._device.check_tensor(self)
        words: Words = self.tensor.data()
        return words

    def write(self, words: Words, offset: int = 0) -> None:
        self._device.check_tensor(self)
        if self._memory is not Memory.UPLOAD and words.nbytes != self._nbytes:
            # The staging copy may be older than the tensor; only a whole write may replace it unread.
            self._device.copy_to_host(self)
        self.mapped[offset // 4 : offset // 4 + words.size] = words.ravel()
        if self._memory is not Memory.UPLOAD:
            self._device.copy_to_device(self)

    def read(self, nbytes: int, offset: int = 0) -> Words:
        self._device.check_tensor(self)
        if self._memory is not Memory.UPLOAD:
            self._device.copy_to_host(self)
        return self.mapped[offset // 4 : (offset + nbytes) // 4].copy()

    def close(self) -> None:
        if self._device.disown_tensor(self):
            self.tensor.destroy()


class KomputeAlgorithm:
    """A kp algorithm, made when it is first recorded: kp compiles a pipeline for it, and odd steps may never come."""

    def __init__(self, name: str, make: Callable[[], Any]) -> None:
        self._name = name
        self._make = make
        self._made: Any = None

    @property
    def compiled(self) -> bool:
        return self._made is not None

    def get(self) -> Any:
        if self._made is None:
            with calling(f"{self._name}: pipeline"):
                self._made = self._make()
        return self._made

    def destroy(self) -> None:
        if self._made is not None:
            self._made.destroy()


class _Piece(Struct):
    """A sequence, and the last dispatch in it or before it."""

    sequence: Any
    last_dispatch: str


class KomputeRecording:
    """kp sequences, one or several. `submit` runs them to their end: kp cannot run a recorded one without waiting.

    Recording again takes new sequences: kp's command pools do not allow a command buffer to be reset.
    """

    def __init__(self, device: KomputeDevice) -> None:
        self._device = device
        self._sequences: list[_Piece] = []
        # By identity: written and not yet copied to staging in the sequence being recorded, and copied there.
        self._written: set[int] = set()
        self._copied: set[int] = set()
        device.own_sequence(self)

    def record(self, commands: Sequence[Command]) -> None:
        self._device.check_sequence(self)
        with calling("recording for kompute"):
            self._destroy()
            self._begin_sequence()
            for command in commands:
                self._record(command)
            for piece in self._sequences:
                self._device.finish(piece.sequence)

    def _record(self, command: Command) -> None:
        if isinstance(command, Dispatch):
            self._sequences[-1].sequence.record(kp().OpAlgoDispatch(command.prepared.get()))
            self._written |= {id(part.buffer) for part in command.writes}
            self._sequences[-1].last_dispatch = command.name
        else:
            buffers: dict[int, Any] = {id(part.buffer): part.buffer for part in command.slices}
            self._order(buffers, to_host=not isinstance(command, Barrier))

    def _begin_sequence(self) -> None:
        """What the one before did is waited for before this one runs."""
        before = self._sequences[-1].last_dispatch if self._sequences else "none"
        self._sequences.append(_Piece(self._device.manager.sequence(), before))
        self._written, self._copied = set(), set()

    def _order(self, buffers: Mapping[int, Any], *, to_host: bool) -> None:
        """A barrier for what this sequence wrote, or to the host, whichever sequence wrote it.

        kp's copy to staging has one. Two of the same tensor are a hazard there, and where nothing is to be copied it
        has no barrier at all: then the rest is a sequence of its own.
        """
        wanted = buffers.keys() & self._written
        stuck = bool(wanted & self._copied or (self._written and not wanted and not to_host))
        if stuck:
            self._begin_sequence()
            wanted = set()
        if to_host:
            wanted |= buffers.keys() - self._copied
        if wanted:
            tensors = [buffer.tensor for key, buffer in buffers.items() if key in wanted]
            self._sequences[-1].sequence.record(kp().OpTensorSyncLocal(tensors))
            self._written -= wanted
            self._copied |= wanted

    def submit(self) -> None:
        self._device.check_sequence(self)
        for piece in self._sequences:
            self._device.run(piece.sequence, piece.last_dispatch)

    def wait(self) -> None:
        """Nothing to do: `submit` has waited."""

    def kernel_ns(self) -> list[float]:
        """None: kp never resets its query pool and hides the period, so its times are not used."""
        return []

    def ticks(self) -> list[tuple[int, int]]:
        """None either."""
        return []

    def close(self) -> None:
        if self._device.disown_sequence(self):
            self._destroy()

    def _destroy(self) -> None:
        for piece in self._sequences:
            piece.sequence.destroy()
        self._sequences.clear()


class KomputeDevice(Lifetime):
    """See `vkcat.device.interface.Device`."""

    backend = "kompute"
    offsets = False
    rewrites = False
    separate_wait = False
    lost = False
    timestamps = False

    def __init__(self, info: DeviceInfo) -> None:
        super().__init__(info)
        self._tensors: dict[int, KomputeBuffer] = {}
        self._sequences: dict[int, KomputeRecording] = {}
        # With the dispatch, which keeps its place in memory, and so its identity, for itself.
        self._algorithms: dict[int, tuple[Dispatch, KomputeAlgorithm]] = {}
        with ExitStack() as made, calling(f"opening {info.name} by kompute"):
            self.manager = kp().Manager(info.index, [info.compute_queue_family], [])
            made.callback(self.manager.destroy)
            self._proof = Proof(self.manager)
            made.pop_all()
        self._check_round_trip()

    def _check_round_trip(self) -> None:
        """With numpy 2, kp 0.9.0 reads element 0 everywhere, without an error."""
        buffer = KomputeBuffer(self, 64, Memory.READBACK)
        sent = np.arange(16, dtype=np.uint32)
        buffer.write(sent)
        got = buffer.read(64)
        buffer.close()
        if not np.array_equal(got, sent):
            self.close()
            raise DeviceError(
                mismatch(
                    "backend kompute: round trip of arange",
                    sent[:4].tolist(),
                    got[:4].tolist(),
                    "kp needs numpy below 2",
                )
            )

    def finish(self, sequence: Any) -> None:
        """Record what every sequence ends with."""
        self._proof.finish(sequence)

    def run(self, sequence: Any, last_dispatch: str) -> None:
        """Run a finished sequence to its end. Raises `DeviceError`."""
        try:
            self._proof.run(sequence, f"{self.info.name}: kompute's submission, last dispatch {last_dispatch}")
        except DeviceError:
            # What runs and what does not is unknown from here on.
            self.lost = True
            raise

    def copy_to_device(self, buffer: KomputeBuffer) -> None:
        self._copy(kp().OpTensorSyncDevice([buffer.tensor]))

    def copy_to_host(self, buffer: KomputeBuffer) -> None:
        self._copy(kp().OpTensorSyncLocal([buffer.tensor]))

    def _copy(self, operation: Any) -> None:
        with ExitStack() as made:
            with calling("recording a copy for kompute"):
                sequence = self.manager.sequence()
                made.callback(sequence.destroy)
                sequence.record(operation)
                self.finish(sequence)
            self.run(sequence, "none, a copy")

    def own_tensor(self, buffer: KomputeBuffer) -> None:
        self._tensors[id(buffer)] = buffer

    def disown_tensor(self, buffer: KomputeBuffer) -> bool:
        return self._tensors.pop(id(buffer), None) is not None

    def check_tensor(self, buffer: KomputeBuffer) -> None:
        """Raises `DeviceError` when the buffer has been closed, or is another device's: kp crashes on either."""
        check_owned(buffer, self._tensors, "buffer", self.info)

    def check_sequence(self, recording: KomputeRecording) -> None:
        """Likewise."""
        check_owned(recording, self._sequences, "recording", self.info)

    def own_sequence(self, recording: KomputeRecording) -> None:
        self._sequences[id(recording)] = recording

    def disown_sequence(self, recording: KomputeRecording) -> bool:
        return self._sequences.pop(id(recording), None) is not None

    def calibrated_timestamps(self) -> None:
        """None: there are no timestamps to calibrate."""

    def buffer(self, nbytes: int, memory: Memory) -> KomputeBuffer:
        self.check_open()
        return KomputeBuffer(self, nbytes, memory)

    def compiling(self, shaders: Iterable[tuple[Shader, Sequence[int]]]) -> AbstractContextManager[None]:
        """Nothing: kp compiles a pipeline with each algorithm, and keeps none."""
        del shaders
        self.check_open()
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
        self.check_open()
        check_shader(shader, spec, self.info)
        check_dispatch(name, shader, slices, push, groups, self.info)
        if [binding.index for binding in shader.interface.bindings] != list(range(len(slices))):
            raise DeviceError(mismatch(f"{name}: bindings", "0, 1, 2, ... for kompute", shader.interface.bindings))
        for binding, part in zip(shader.interface.bindings, slices, strict=True):
            check_owned(part.buffer, self._tensors, f"{name}: {binding.name}: buffer", self.info)
        tensors = [part.buffer.tensor for part in slices]  # type: ignore[attr-defined]
        numbers = numbered(shader, spec), push.view(np.float32)
        algorithm = KomputeAlgorithm(name, lambda: self.manager.algorithm(tensors, shader.code, list(groups), *numbers))
        dispatch = Dispatch.of(name, shader, slices, algorithm)
        self._algorithms[id(dispatch)] = dispatch, algorithm
        return dispatch

    def release(self, dispatch: Dispatch) -> None:
        kept = self._algorithms.pop(id(dispatch), None)
        if kept is not None:
            kept[1].destroy()

    def recording(self, *, timestamps: bool = False) -> KomputeRecording:
        del timestamps
        self.check_open()
        return KomputeRecording(self)

    def _forget(self) -> None:
        self._tensors, self._sequences, self._algorithms = {}, {}, {}

    def _release(self) -> None:
        """Destroy sequences, algorithms, tensors, then the manager: kp crashes in any other order."""
        for recording in list(self._sequences.values()):
            recording.close()
        for _, algorithm in self._algorithms.values():
            algorithm.destroy()
        self._algorithms.clear()
        for buffer in list(self._tensors.values()):
            buffer.close()
        self._proof.destroy()
        self.manager.destroy()


def open_device(wanted: str | None = None) -> KomputeDevice:
    """Open the device that `wanted` names, or the best one. Raises `DeviceError`.

    Devices are enumerated without Kompute first, whose manager crashes when there is no driver.
    """
    kp()
    info, _ = select(vulkan.devices(), wanted)
    return KomputeDevice(info)
