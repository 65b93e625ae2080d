"""A device that notes when the host records, submits and waits, and when each dispatch of a submission ran."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any

from msgspec import Struct, field

from vkcat.device.interface import CalibratedTimestamps, Command, Device, Dispatch, Recording


class Span(Struct, frozen=True):
    """Something the host did, in nanoseconds of its clock."""

    name: str
    begin: int
    end: int


class Submission(Struct):
    """What went to the device at once: its commands, each dispatch's counter values, and both clocks at its end."""

    commands: Sequence[Command]
    submit: Span
    wait: Span
    ticks: list[tuple[int, int]]
    clocks: CalibratedTimestamps | None


class Log(Struct):
    """What happened, in order."""

    spans: list[Span] = field(default_factory=list)
    submissions: list[Submission] = field(default_factory=list)

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        begin = perf_counter_ns()
        yield
        self.spans.append(Span(name, begin, perf_counter_ns()))


class _LoggedRecording:
    """A recording with timestamps. They are read after the wait, outside of it."""

    def __init__(self, device: Device, log: Log) -> None:
        self._device, self._log = device, log
        self._recording: Recording = device.recording(timestamps=True)
        self._commands: Sequence[Command] = ()
        self._submit: Span | None = None

    def record(self, commands: Sequence[Command]) -> None:
        self._commands = commands
        with self._log.span("record"):
            self._recording.record(commands)

    def submit(self) -> None:
        with self._log.span("submit"):
            self._recording.submit()
        self._submit = self._log.spans[-1]

    def wait(self) -> None:
        with self._log.span("wait"):
            self._recording.wait()
        wait = self._log.spans[-1]
        assert self._submit is not None
        with self._log.span("read timestamps"):
            ticks, clocks = self._recording.ticks(), self._device.calibrated_timestamps()
        self._log.submissions.append(Submission(self._commands, self._submit, wait, ticks, clocks))

    def kernel_ns(self) -> list[float]:
        return self._recording.kernel_ns()

    def ticks(self) -> list[tuple[int, int]]:
        return self._recording.ticks()

    def close(self) -> None:
        self._recording.close()


class LoggedDevice:
    """A device in all but its recordings, which are logged."""

    def __init__(self, device: Device, log: Log) -> None:
        self._device, self._log = device, log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)

    def recording(self, *, timestamps: bool = False) -> Recording:
        del timestamps
        return _LoggedRecording(self._device, self._log)


def dispatches(commands: Sequence[Command]) -> list[tuple[Dispatch, bool]]:
    """Each dispatch, and whether a barrier stands before it."""
    found, behind = [], False
    for command in commands:
        if isinstance(command, Dispatch):
            found.append((command, behind))
        behind = not isinstance(command, Dispatch)
    return found
