"""What the device and driver cost with no work at all, measured in the same run as the steps."""

from __future__ import annotations

from time import perf_counter_ns

import numpy as np
from msgspec import Struct

from vkcat.device.interface import Barrier, Command, Device, Dispatch, Memory, Recording, Slice
from vkcat.profile.samples import CONTROL, Series, series
from vkcat.profile.spread import Spread, spread
from vkcat.shader import load

DISPATCHES = 32


class Floors(Struct, frozen=True):
    """Microseconds of an empty submit with its wait, taken between steps; of an empty dispatch; of a barrier."""

    backend: str
    empty_submit_us: Spread
    empty_dispatch_us: Spread
    barrier_us: Spread


def timed(recording: Recording) -> int:
    """Nanoseconds of a submission and its wait."""
    begin = perf_counter_ns()
    recording.submit()
    recording.wait()
    return perf_counter_ns() - begin


class FloorProbe:
    """Recordings of nothing, of empty dispatches, and of those with barriers between them.

    For a backend without a barrier of its own (kompute), a barrier is what takes its place: the copy of a written
    tensor; there each dispatch has a tensor of its own, as no tensor may be written twice in a sequence.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        shader = load("floor")
        self._buffers = [device.buffer(256, Memory.DEVICE) for _ in range(DISPATCHES)]
        slices = [Slice(buffer, 0, 256) for buffer in self._buffers]
        empty = np.zeros(0, np.uint32)
        self._dispatches = dispatches = [
            device.dispatch("floor", shader, [part], empty, (), (1, 1, 1)) for part in slices
        ]
        # The shader writes nothing; saying that it does makes a barrier between them one that is recorded.
        written = [Dispatch(d.name, d.slices, d.slices, d.prepared) for d in dispatches]
        apart: list[Command] = []
        for dispatch in written:
            apart += [dispatch, Barrier(dispatch.slices)]
        sequences: list[list[Command]] = [[], [*dispatches], apart]
        self._recordings: list[Recording] = []
        for commands in sequences:
            recording = device.recording()
            recording.record(commands)
            self._recordings.append(recording)
        self._times: list[list[int]] = [[], [], []]
        self._between: list[int] = []

    def sample(self, count: int) -> None:
        """Time each recording `count` times in a row."""
        for recording, times in zip(self._recordings, self._times, strict=True):
            times += [timed(recording) for _ in range(count)]

    def sample_empty(self) -> None:
        """Time an empty submit alone, between steps: how fast a waiting thread wakes depends on what ran before."""
        self._between.append(timed(self._recordings[0]))

    def floors(self, warmup: int) -> Floors:
        empty, dispatched, apart = (np.array(times[warmup:], np.float64) for times in self._times)
        return Floors(
            backend=self._device.backend,
            empty_submit_us=spread(self._after(warmup)),
            empty_dispatch_us=spread(((dispatched - empty) / DISPATCHES).tolist()),
            barrier_us=spread(((apart - dispatched) / DISPATCHES).tolist()),
        )

    def control(self, warmup: int) -> Series:
        """The empty submits between steps."""
        return series(CONTROL, self._device.backend, "empty submit", self._after(warmup))

    def _after(self, warmup: int) -> list[float]:
        """Empty submits between steps, so many for each measured step as there are steps that take turns."""
        return [*map(float, self._between[len(self._between) * warmup // len(self._times[0]) :])]

    def close(self) -> None:
        for recording in self._recordings:
            recording.close()
        for dispatch in self._dispatches:
            self._device.release(dispatch)
        for buffer in self._buffers:
            buffer.close()
