"""When a step's commands are recorded, submitted and waited for.

- `eager`: a submit and a wait for each dispatch, recorded each time.
- `batched`: one submit for each step, recorded each time.
- `replay`: recorded once for even and once for odd steps; a step allocates, records and binds nothing. Where the host
  has no say between steps, the next one may be submitted before it has looked at the last.
- `unrolled`: as `replay`, and where the host has no say between steps, many steps in one submission, two of which may
  be under way. So many that it keeps within a limit, by measurement, so that no watchdog ends it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from time import perf_counter_ns
from typing import Protocol

from msgspec import Struct

from vkcat.device.interface import Command, Device, Dispatch, Recording, ToHost
from vkcat.errors import DeviceError, mismatch

SUBMIT_LIMIT_MS = 100.0
"""Milliseconds that one submission of many steps may take: desktop systems end one of some seconds."""

Commands = Mapping[str, tuple[list[Command], list[Command]]]
"""By graph: the commands of even and of odd steps."""


class HostTimes(Struct):
    """Nanoseconds the host spent on the last step, or on launches since none was under way; how often it submitted."""

    record: int = 0
    submit: int = 0
    wait: int = 0
    submits: int = 0


class Runner(Protocol):
    """Runs a step of a graph, even or odd, to its end."""

    times: HostTimes

    @property
    def overlaps(self) -> bool:
        """Whether a launch may begin before the one before it has been finished: two at most."""
        ...

    def __call__(self, graph: str, parity: int) -> None: ...

    def chunk(self, graph: str) -> int:
        """How many steps to `launch` at a time: 1 where there is nothing to gain."""
        ...

    def launch(self, graph: str, parity: int, count: int) -> None:
        """Begin so many steps, of which `chunk` is the most. At most two launches may be unfinished."""
        ...

    def finish(self) -> None:
        """Wait for the oldest launch, if there is one."""
        ...

    def kernel_ns(self) -> list[float]:
        """Nanoseconds of each dispatch of the last step, when made with timestamps."""
        ...

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


class _StepByStep(ABC):
    """A launch is a step, which is run to its end where a schedule does not say otherwise."""

    overlaps = False

    @abstractmethod
    def __call__(self, graph: str, parity: int) -> None: ...

    def chunk(self, graph: str) -> int:
        del graph
        return 1

    def launch(self, graph: str, parity: int, count: int) -> None:
        for at in range(count):
            self(graph, (parity + at) & 1)

    def finish(self) -> None:
        """Nothing is under way."""
        return


class _Eager(_StepByStep):
    def __init__(self, device: Device, commands: Commands, *, timestamps: bool, submit_limit_ms: float) -> None:
        del submit_limit_ms  # a submission is one step at most
        self.times = HostTimes()
        self._recording = device.recording(timestamps=timestamps)
        self._pieces = {
            (name, parity): _split(sequence) for name, both in commands.items() for parity, sequence in enumerate(both)
        }
        self._kernel_ns: list[float] = []

    def __call__(self, graph: str, parity: int) -> None:
        times = self.times = HostTimes()
        self._kernel_ns = []
        for piece in self._pieces[graph, parity]:
            _record(self._recording, piece, times)
            _submit_and_wait(self._recording, times)
            self._kernel_ns += self._recording.kernel_ns()

    def kernel_ns(self) -> list[float]:
        return self._kernel_ns

    def close(self) -> None:
        self._recording.close()


class _Batched(_StepByStep):
    def __init__(self, device: Device, commands: Commands, *, timestamps: bool, submit_limit_ms: float) -> None:
        del submit_limit_ms  # a submission is one step at most
        self.times = HostTimes()
        self._commands = commands
        self._recording = device.recording(timestamps=timestamps)

    def __call__(self, graph: str, parity: int) -> None:
        times = self.times = HostTimes()
        _record(self._recording, self._commands[graph][parity], times)
        _submit_and_wait(self._recording, times)

    def kernel_ns(self) -> list[float]:
        return self._recording.kernel_ns()

    def close(self) -> None:
        self._recording.close()


class _Launch(Struct):
    recording: Recording
    graph: str
    count: int
    begin: int


class _Replay(_StepByStep):
    """A launch is a step: an even and an odd one may be under way, each in a recording of its own."""

    def __init__(self, device: Device, commands: Commands, *, timestamps: bool, submit_limit_ms: float) -> None:
        del submit_limit_ms  # a submission is one step at most
        self.times = HostTimes()
        self._device, self._timestamps = device, timestamps
        self.overlaps = device.separate_wait
        self._launched: deque[_Launch] = deque()
        self._recordings: dict[str, list[Recording]] = {}
        self._last: Recording | None = None
        with ExitStack() as made:
            for name, both in commands.items():
                self._recordings[name] = [self._recorded(sequence, made) for sequence in both]
            self._made = made.pop_all()

    def _recorded(self, commands: Sequence[Command], made: ExitStack) -> Recording:
        """A recording of commands; `made` closes it."""
        recording = self._device.recording(timestamps=self._timestamps)
        made.callback(recording.close)
        recording.record(commands)
        return recording

    def __call__(self, graph: str, parity: int) -> None:
        times = self.times = HostTimes()
        self._last = self._recordings[graph][parity]
        _submit_and_wait(self._last, times)

    def launch(self, graph: str, parity: int, count: int) -> None:
        assert count == 1, "more than the chunk"
        self._begin(self._recordings[graph][parity], graph, count)

    def _begin(self, recording: Recording, graph: str, count: int) -> None:
        if not self._launched:
            self.times = HostTimes()
        begin = perf_counter_ns()
        # Known before it is under way and until it has been waited for, whatever interrupts either.
        self._launched.append(_Launch(recording, graph, count, begin))
        recording.submit()
        self.times.submit += perf_counter_ns() - begin
        self.times.submits += 1

    def finish(self) -> None:
        if self._launched:
            begin = perf_counter_ns()
            self._launched[0].recording.wait()
            end = perf_counter_ns()
            self.times.wait += end - begin
            self._finished(self._launched.popleft(), end)

    def _finished(self, launch: _Launch, end: int) -> None:
        """What a launch that ended at `end` tells of the next."""

    def kernel_ns(self) -> list[float]:
        return self._last.kernel_ns() if self._last else []

    def close(self) -> None:
        self._made.close()


MOST_STEPS = 64


class _Unrolled(_Replay):
    """Chunks grow from one step by doubling, to the greatest that keeps within the limit by the last one's time."""

    def __init__(self, device: Device, commands: Commands, *, timestamps: bool, submit_limit_ms: float) -> None:
        if not device.rewrites:
            expected = "a backend whose recordings may write a tensor more than once"
            raise DeviceError(mismatch("unrolled", expected, device.backend, "see --backend vulkan"))
        super().__init__(device, commands, timestamps=timestamps, submit_limit_ms=submit_limit_ms)
        self._commands, self._limit_ns = commands, submit_limit_ms * 1e6
        self._chunks: dict[str, int] = {}
        # By graph, parity and count, two recordings: the same one cannot be under way twice.
        self._pairs: dict[tuple[str, int, int], list[Recording]] = {}
        self._last_end = 0

    def chunk(self, graph: str) -> int:
        return self._chunks.setdefault(graph, 1)

    def launch(self, graph: str, parity: int, count: int) -> None:
        pair = self._pairs.get((graph, parity, count)) or self._record_chunk(graph, parity, count)
        busy = [launch.recording for launch in self._launched]
        self._begin(next(one for one in pair if one not in busy), graph, count)

    def _record_chunk(self, graph: str, parity: int, count: int) -> list[Recording]:
        commands: list[Command] = []
        for at in range(count):
            step = self._commands[graph][(parity + at) & 1]
            # The host looks only after the last.
            commands += step if at == count - 1 else [one for one in step if not isinstance(one, ToHost)]
        with ExitStack() as made:
            pair = [self._recorded(commands, made) for _ in range(2)]
            self._made.push(made.pop_all())
        self._pairs[graph, parity, count] = pair
        return pair

    def _finished(self, launch: _Launch, end: int) -> None:
        # What was launched behind another began when that one ended.
        per_step = (end - max(launch.begin, self._last_end)) / launch.count
        self._last_end = end
        fitting = self._limit_ns / max(per_step, 1)
        self._chunks[launch.graph] = int(min(2 * launch.count, MOST_STEPS, 2 ** max(int(math.log2(fitting)), 0)))


class _Make(Protocol):
    def __call__(self, device: Device, commands: Commands, *, timestamps: bool, submit_limit_ms: float) -> Runner: ...


RUNNERS: dict[str, _Make] = {"eager": _Eager, "batched": _Batched, "replay": _Replay, "unrolled": _Unrolled}
SCHEDULES = tuple(RUNNERS)
