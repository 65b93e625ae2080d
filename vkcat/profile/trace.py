"""Some steps of each schedule as a trace that Perfetto (ui.perfetto.dev) and Chrome's tracing page show.

Host and device lie on one clock. Where the device can tell both clocks at once (VK_EXT_calibrated_timestamps), that is
used; else the device's clock is set so that every submission's dispatches lie between its submit and the end of its
wait, in the middle of what that allows. The file says which, and how far it may be off.

Format: Trace Event Format, Google, 2016. Times are in microseconds. Traced steps are not the measured ones: timestamps,
and reading them, cost time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from msgspec import Struct

from vkcat.device.interface import CalibratedTimestamps, Device, DeviceInfo
from vkcat.device.timestamps import elapsed_ns, host_ns
from vkcat.model import Model
from vkcat.profile.measure import Array, Subject
from vkcat.profile.spans import Log, LoggedDevice, Span, Submission, dispatches

STEPS = 8
"""Samples of each schedule: steps, or with `unrolled` submissions of many. One before them is left out."""

HOST, DEVICE = 1, 2
"""Thread numbers of a trace: the host, and the first of the device's. Dispatches that overlap take further ones."""

Event = dict[str, Any]


class Clock(Struct, frozen=True):
    """How device time became host time: `calibrated` or `estimated`, or `none` where the device has no timestamps."""

    kind: str
    deviation_us: float | None


class _Run(Struct, frozen=True):
    """One dispatch on the host's clock, in nanoseconds."""

    name: str
    begin: float
    end: float
    behind_barrier: bool


def trace(
    devices: Sequence[Device], model: Model, weights: Mapping[str, Array], schedules: Sequence[str], *, graph: str
) -> dict[str, Any]:
    """The trace of every schedule on every device, a process each, as the JSON object of the format."""
    events: list[Event] = []
    clocks: dict[str, dict[str, Any]] = {}
    names = [(device, schedule) for device in devices for schedule in schedules]
    for process, (device, schedule) in enumerate(names, 1):
        log = _logged(device, model, weights, schedule, graph)
        clock, runs = on_host_clock(log.submissions, device.info)
        name = f"{schedule}, {device.backend}"
        clocks[name] = {"clock": clock.kind, "deviation_us": clock.deviation_us}
        origin = min(span.begin for span in log.spans)
        events += _events(process, name, log, runs, origin)
    device_ = devices[0].info
    about = {"device": device_.name, "driver": device_.driver, "graph": graph, "batch": model.batch, "clocks": clocks}
    return {"displayTimeUnit": "ns", "otherData": about, "traceEvents": events}


def clock_line(about: Mapping[str, Any]) -> str:
    """What a trace's `otherData` says of a clock, in words."""
    if about["clock"] == "none":
        return "no device tracks, as there are no GPU timestamps"
    return f"device clock {about['clock']}, off by at most {about['deviation_us']:.3g} us"


def _logged(device: Device, model: Model, weights: Mapping[str, Array], schedule: str, graph: str) -> Log:
    log = Log()
    logged = cast(Device, LoggedDevice(device, log))
    subject = Subject(logged, model, weights, schedule, model.graphs[graph])
    try:
        for _ in range(STEPS + 1):
            subject.traced(log.span)
    finally:
        subject.close()
    # What made the subject ready, and the first step, which may compile, are not of interest.
    first = next(span for span in log.spans if span.name == "step").end
    spans = [span for span in log.spans if span.begin >= first]
    return Log(spans, [one for one in log.submissions if one.submit.begin >= first])


def on_host_clock(submissions: Sequence[Submission], info: DeviceInfo) -> tuple[Clock, list[list[_Run]]]:
    """The dispatches of each submission on the host's clock, and how they came there."""
    if not any(submission.ticks for submission in submissions):
        return Clock("none", None), [[] for _ in submissions]
    period, bits = info.timestamp_period, info.timestamp_bits
    known = [submission.clocks for submission in submissions]
    calibrated = [one for one in known if one is not None]
    if len(calibrated) == len(submissions):
        clock = Clock("calibrated", max(one.deviation_ns for one in calibrated) / 1e3)
    else:
        guess, deviation = estimated(submissions, period, bits)
        calibrated = [guess] * len(submissions)
        clock = Clock("estimated", deviation / 1e3)
    placed = []
    for submission, moment in zip(submissions, calibrated, strict=True):
        commands = dispatches(submission.commands)
        placed.append(
            [
                _Run(dispatch.name, begin_ns, begin_ns + elapsed_ns(begin, end, period, bits), behind)
                for (dispatch, behind), (begin, end) in zip(commands, submission.ticks, strict=True)
                for begin_ns in [host_ns(begin, moment, period, bits)]
            ]
        )
    return clock, placed


def estimated(submissions: Sequence[Submission], period: float, bits: int) -> tuple[CalibratedTimestamps, float]:
    """Both clocks at a moment, and by how many nanoseconds they may be off.

    A dispatch begins no earlier than its submit and ends no later than its wait. Each submission bounds the difference
    of the clocks from both sides, and the middle between the closest bounds is taken.
    """
    ticks = next(submission.ticks[0][0] for submission in submissions if submission.ticks)
    base = CalibratedTimestamps(ticks, 0, 0)
    least, most = float("-inf"), float("inf")
    for submission in submissions:
        if submission.ticks:
            begins = [host_ns(begin, base, period, bits) for begin, _ in submission.ticks]
            ends = [host_ns(end, base, period, bits) for _, end in submission.ticks]
            least = max(least, submission.submit.begin - min(begins))
            most = min(most, submission.wait.end - max(ends))
    middle = (least + most) / 2
    return CalibratedTimestamps(ticks, round(middle), round(abs(most - least) / 2)), abs(most - least) / 2


def _events(process: int, name: str, log: Log, runs: Sequence[Sequence[_Run]], origin: int) -> Iterator[Event]:
    yield _named("process_name", process, 0, name)
    yield _named("thread_name", process, HOST, "host")
    for span in sorted(log.spans, key=lambda span: (span.begin, -span.end)):
        yield _slice(process, HOST, "host", span.name, span.begin, span.end, origin)
    lanes: list[float] = []
    for number, (submission, dispatched) in enumerate(zip(log.submissions, runs, strict=True)):
        if dispatched:
            yield from _flow(process, 1000 * process + number, submission.submit, dispatched[0], origin)
        ended = 0.0
        for run in dispatched:
            begin = run.begin
            if run.behind_barrier and ended:
                # The counter is read before the barrier has let the dispatch begin.
                begin = min(max(begin, ended), run.end)
                yield _slice(process, 0, "barrier", "barrier", ended, max(begin, ended), origin)
            lane = next((at for at, last in enumerate(lanes) if last <= begin), len(lanes))
            lanes[lane : lane + 1] = [run.end]
            yield _slice(process, DEVICE + lane, "dispatch", run.name, begin, run.end, origin)
            ended = max(ended, run.end)
    if lanes:
        yield _named("thread_name", process, 0, "device: barriers")
    for lane in range(len(lanes)):
        yield _named("thread_name", process, DEVICE + lane, "device" if lane == 0 else f"device: overlap {lane}")


def _named(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": name}}


def _slice(process: int, thread: int, kind: str, name: str, begin: float, end: float, origin: int) -> Event:
    times = {"ts": (begin - origin) / 1e3, "dur": (end - begin) / 1e3}
    return {"ph": "X", "cat": kind, "name": name, "pid": process, "tid": thread, **times}


def _flow(process: int, number: int, submit: Span, first: _Run, origin: int) -> Iterator[Event]:
    """An arrow from a submit to its first dispatch."""
    ends = (("s", HOST, submit.begin), ("f", DEVICE, first.begin))
    for phase, thread, moment in ends:
        place = {"pid": process, "tid": thread, "ts": (moment - origin) / 1e3}
        yield {"ph": phase, "bp": "e", "id": number, "cat": "submission", "name": "submission", **place}
