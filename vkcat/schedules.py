"""When a step's commands are recorded, submitted and waited for.

- `eager`: a submit and a wait for each dispatch, recorded each time.
- `batched`: one submit for each step, recorded each time.
- `replay`: recorded once for even and once for odd steps; a step allocates, records and binds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Protocol

from vkcat.device.interface import Command, Device, Dispatch, Recording

Commands = Mapping[str, tuple[list[Command], list[Command]]]
"""By graph: the commands of even and of odd steps."""


@dataclass
class HostTimes:
    """Nanoseconds the host spent on the last step, and how often it submitted."""

    record: int = 0
    submit: int = 0
    wait: int = 0
    submits: int = 0


class Runner(Protocol):
    """Runs a step of a graph, even or odd, to its end."""

    times: HostTimes

    def __call__(self, graph: str, parity: int) -> None: ...

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


class _Eager:
    def __init__(self, device: Device, commands: Commands, *, timestamps: bool) -> None:
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


class _Batched:
    def __init__(self, device: Device, commands: Commands, *, timestamps: bool) -> None:
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


class _Replay:
    def __init__(self, device: Device, commands: Commands, *, timestamps: bool) -> None:
        self.times = HostTimes()
        self._recordings: dict[str, tuple[Recording, Recording]] = {}
        self._last: Recording | None = None
        for name, both in commands.items():
            pair = (device.recording(timestamps=timestamps), device.recording(timestamps=timestamps))
            for recording, sequence in zip(pair, both, strict=True):
                recording.record(sequence)
            self._recordings[name] = pair

    def __call__(self, graph: str, parity: int) -> None:
        times = self.times = HostTimes()
        self._last = self._recordings[graph][parity]
        _submit_and_wait(self._last, times)

    def kernel_ns(self) -> list[float]:
        return self._last.kernel_ns() if self._last else []

    def close(self) -> None:
        for pair in self._recordings.values():
            for recording in pair:
                recording.close()


class _Make(Protocol):
    def __call__(self, device: Device, commands: Commands, *, timestamps: bool) -> Runner: ...


RUNNERS: dict[str, _Make] = {"eager": _Eager, "batched": _Batched, "replay": _Replay}
SCHEDULES = tuple(RUNNERS)
