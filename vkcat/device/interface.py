"""What a backend offers: buffers, prepared dispatches, and recordings of them.

Vulkan's nouns under their own names. A backend knows shaders and bytes; it knows nothing of models or plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from threading import RLock
from typing import Any, Protocol

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vkcat.shader import Shader

Words = NDArray[np.uint32]


class Memory(Enum):
    """Who touches a buffer often."""

    DEVICE = "device"  # only shaders; the host through a staging copy
    UPLOAD = "upload"  # the host writes, shaders read; mapped
    READBACK = "readback"  # shaders write, the host reads; mapped


class Limits(Struct, frozen=True):
    """The limits that decide whether and how a dispatch fits (names as in VkPhysicalDeviceLimits)."""

    max_storage_buffer_range: int
    max_memory_allocation_size: int
    min_storage_buffer_offset_alignment: int
    max_compute_work_group_count: tuple[int, int, int]
    max_compute_work_group_size: tuple[int, int, int]
    max_compute_work_group_invocations: int
    max_compute_shared_memory_size: int
    max_push_constants_size: int
    max_per_stage_descriptor_storage_buffers: int


class DeviceInfo(Struct, frozen=True):
    """A physical device. `timestamp_bits` is 0 where the compute queue has no timestamps; the period is ns a tick.

    `subgroup_arithmetic` says that the invocations of a subgroup can add and compare their numbers in compute shaders.
    """

    index: int
    name: str
    kind: str
    api_version: tuple[int, int, int]
    driver: str
    subgroup_size: int
    subgroup_arithmetic: bool
    float16: bool
    timestamp_bits: int
    timestamp_period: float
    compute_queue_family: int | None
    limits: Limits


class Buffer(Protocol):
    """A range of device memory. Offsets and sizes are in bytes, multiples of four; data travels as uint32 words."""

    @property
    def nbytes(self) -> int: ...

    @property
    def mapped(self) -> Words:
        """The live words of an UPLOAD or READBACK buffer."""
        ...

    def write(self, words: Words, offset: int = 0) -> None: ...

    def read(self, nbytes: int, offset: int = 0) -> Words: ...

    def close(self) -> None: ...


class Slice(Struct, frozen=True):
    """Part of a buffer, as a descriptor sees it."""

    buffer: Buffer
    offset: int
    size: int


class Dispatch(Struct, frozen=True, weakref=True):
    """A pipeline with its bindings, push constants and group counts: ready to be recorded any number of times."""

    name: str
    slices: tuple[Slice, ...]
    writes: tuple[Slice, ...]
    prepared: Any

    @staticmethod
    def of(name: str, shader: Shader, slices: Sequence[Slice], prepared: Any) -> Dispatch:
        """A dispatch whose written slices follow from the shader's interface."""
        pairs = zip(shader.interface.bindings, slices, strict=True)
        return Dispatch(name, tuple(slices), tuple(part for binding, part in pairs if binding.writes), prepared)


class Barrier(Struct, frozen=True):
    """Shader writes to `slices` before this are visible to shader reads and writes after it."""

    slices: tuple[Slice, ...]


class ToHost(Struct, frozen=True):
    """Shader writes to `slices` before this are visible to the host once the recording has been waited for."""

    slices: tuple[Slice, ...]


Command = Dispatch | Barrier | ToHost


class CalibratedTimestamps(Struct, frozen=True):
    """A device's timestamp counter and `time.perf_counter_ns()` at one moment, to within `deviation_ns`."""

    ticks: int
    host_ns: int
    deviation_ns: int


class Recording(Protocol):
    """A command buffer: record once or many times, submit, wait."""

    def record(self, commands: Sequence[Command]) -> None: ...

    def submit(self) -> None: ...

    def wait(self) -> None: ...

    def kernel_ns(self) -> list[float]:
        """Nanoseconds of each dispatch in the last submission; only of a recording made with timestamps."""
        ...

    def ticks(self) -> list[tuple[int, int]]:
        """The device's counter at the begin and end of each dispatch, likewise."""
        ...

    def close(self) -> None: ...


class Device(Protocol):
    """An open device with one compute queue."""

    @property
    def backend(self) -> str: ...

    @property
    def info(self) -> DeviceInfo: ...

    @property
    def offsets(self) -> bool:
        """Whether a binding may start inside a buffer."""
        ...

    @property
    def rewrites(self) -> bool:
        """Whether a recording may write a tensor more than once."""
        ...

    @property
    def separate_wait(self) -> bool:
        """Whether submit returns before the work is done, so that waiting can be timed by itself."""
        ...

    @property
    def timestamps(self) -> bool: ...

    def calibrated_timestamps(self) -> CalibratedTimestamps | None:
        """The device's clock against the host's; None where the device cannot tell."""
        ...

    @property
    def lock(self) -> RLock:
        """Held by whoever uses the device: its queue, command pool and copies are for one thread at a time."""
        ...

    def check_open(self) -> None:
        """Raises `DeviceError` when the device has been closed or lost."""
        ...

    def buffer(self, nbytes: int, memory: Memory) -> Buffer: ...

    def compiling(self, shaders: Iterable[tuple[Shader, Sequence[int]]]) -> AbstractContextManager[None]:
        """Compile shaders with their specialisation constants beside what the block does, and to the end of it.

        After it `dispatch` finds them compiled. In the block there may be buffers, and no dispatch. Raises
        `DeviceError`.
        """
        ...

    def dispatch(
        self,
        name: str,
        shader: Shader,
        slices: Sequence[Slice],
        push: Words,
        spec: Sequence[int],
        groups: tuple[int, int, int],
    ) -> Dispatch: ...

    def release(self, dispatch: Dispatch) -> None:
        """Give back what a dispatch holds; no recording that has it may be submitted after."""
        ...

    def recording(self, *, timestamps: bool = False) -> Recording: ...

    def close(self) -> None: ...
