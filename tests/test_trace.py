"""Traces: what the format asks for, and that device and host agree on when things were."""

from __future__ import annotations

import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import DRIVERS, HAS_KOMPUTE, name_of
from hypothesis import given
from hypothesis import strategies as st
from stream_models import NO_LIMIT_MS

from vkcat.cli import cli
from vkcat.device.interface import CalibratedTimestamps
from vkcat.device.timestamps import host_ns
from vkcat.model import build
from vkcat.plan import Packing, schedule
from vkcat.profile.spans import Span, Submission
from vkcat.profile.trace import STEPS, estimated
from vkcat.schedules import RUNNERS
from vkcat.stored import read_model

Event = dict[str, Any]
SLACK_US = 0.002
"""Of the rounding of times to a thousandth of a microsecond, at both ends."""


def _traced(model: Path, driver: str, path: Path, *options: str) -> dict[str, Any]:
    short = ["--runs", "1", "--warmup", "0", "--device", name_of(driver)]
    done = CliRunner().invoke(cli, ["profile", str(model), *short, "--trace", str(path), *options])
    assert done.exit_code == 0, (done.output, done.exception)
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def _tracks(trace: dict[str, Any]) -> dict[tuple[int, int], list[Event]]:
    """Slices by process and thread, in order of time, what encloses before what it encloses."""
    found: dict[tuple[int, int], list[Event]] = {}
    for event in trace["traceEvents"]:
        if event["ph"] == "X":
            found.setdefault((event["pid"], event["tid"]), []).append(event)
    return {key: sorted(events, key=lambda event: (event["ts"], -event["dur"])) for key, events in found.items()}


def _end(event: Event) -> float:
    return float(event["ts"] + event["dur"])


def _check_nesting(trace: dict[str, Any]) -> None:
    """On each track slices lie apart or within each other, as viewers ask."""
    for events in _tracks(trace).values():
        open_: list[Event] = []
        for event in events:
            assert event["dur"] >= 0
            while open_ and _end(open_[-1]) <= event["ts"] + SLACK_US:
                open_.pop()
            if open_:
                assert _end(event) <= _end(open_[-1]) + SLACK_US, (event, open_[-1])
            open_.append(event)


def _host(trace: dict[str, Any], process: int, name: str) -> list[Event]:
    return [event for event in _tracks(trace)[process, 1] if event["name"] == name]


def _check_order(trace: dict[str, Any]) -> None:
    """Every dispatch lies between its submission's begin and the end of its wait."""
    for process, about in enumerate(trace["otherData"]["clocks"].values(), 1):
        spans = list(zip(_host(trace, process, "submit"), _host(trace, process, "wait"), strict=True))
        dispatches = [
            event for event in trace["traceEvents"] if event.get("cat") == "dispatch" and event["pid"] == process
        ]
        slack = SLACK_US + about["deviation_us"]
        inside = [
            [e for e in dispatches if submit["ts"] - slack <= e["ts"] and _end(e) <= _end(wait) + slack]
            for submit, wait in spans
        ]
        assert all(inside)
        assert sum(map(len, inside)) == len(dispatches)


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_trace_of_every_schedule(driver: str, g2p: Path, tmp_path: Path) -> None:
    trace = _traced(g2p, driver, tmp_path / "t.json", "--schedule", "eager,batched,replay", "--graph", "decode")
    events, clocks = trace["traceEvents"], trace["otherData"]["clocks"]
    assert list(clocks) == ["eager, vulkan", "batched, vulkan", "replay, vulkan"]
    # lavapipe has VK_EXT_calibrated_timestamps, SwiftShader has not.
    kind = {"lavapipe": "calibrated", "swiftshader": "estimated"}[driver]
    assert {about["clock"] for about in clocks.values()} == {kind}
    for event in events:
        assert {"ph", "name", "pid", "tid"} <= event.keys()
        assert event["ph"] in "XMsf"
        assert event["ph"] == "M" or event["ts"] >= -max(about["deviation_us"] for about in clocks.values())
    names = {e["args"]["name"] for e in events if e["name"] == "process_name"}
    assert names == set(clocks)
    _check_nesting(trace)
    _check_order(trace)
    model = build(read_model(g2p).config)
    planned = schedule(tuple(model.graphs.values()), Packing(64, 1 << 30)).steps["decode"][0].dispatches
    kernels = [one.node.kernel.name for one in planned]
    for process, (submits, records) in enumerate([(4, 4), (1, 1), (1, 0)], 1):
        assert len(_host(trace, process, "submit")) == STEPS * submits
        assert len(_host(trace, process, "record")) == STEPS * records
        for name in ("step", "write inputs", "read outputs"):
            assert len(_host(trace, process, name)) == STEPS
        own = [event for event in events if event["pid"] == process]
        run = sorted((event for event in own if event.get("cat") == "dispatch"), key=lambda event: event["ts"])
        assert [event["name"] for event in run] == kernels * STEPS
        # Between the dispatches of a submission; what stands before the first is not timed.
        barriers = sum(one.barrier is not None for one in planned[1:])
        assert sum(event.get("cat") == "barrier" for event in own) == (0 if submits > 1 else STEPS * barriers)
        assert barriers
        starts = {event["id"] for event in own if event["ph"] == "s"}
        assert starts == {event["id"] for event in own if event["ph"] == "f"}
        assert len(starts) == STEPS * submits


@pytest.mark.parametrize("driver", DRIVERS)
def test_many_steps_in_a_submission(driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unrolled = partial(RUNNERS["unrolled"], submit_limit_ms=NO_LIMIT_MS)
    monkeypatch.setitem(RUNNERS, "unrolled", lambda *given, submit_limit_ms, **more: unrolled(*given, **more))
    model = tmp_path / "model"
    assert CliRunner().invoke(cli, ["init", "gru-l3", str(model), "--seed", "1"]).exit_code == 0
    trace = _traced(model, driver, tmp_path / "t.json", "--schedule", "unrolled")
    _check_nesting(trace)
    _check_order(trace)
    samples = [event for event in trace["traceEvents"] if event["name"] == "sample_embedding"]
    assert len(samples) > 2 * STEPS
    assert len(_host(trace, 1, "submit")) == STEPS


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.skipif(not HAS_KOMPUTE, reason="kp is not installed")
def test_a_backend_without_timestamps_has_host_tracks_alone(driver: str, g2p: Path, tmp_path: Path) -> None:
    trace = _traced(g2p, driver, tmp_path / "t.json", "--schedule", "batched", "--backend", "kompute")
    assert trace["otherData"]["clocks"] == {"batched, kompute": {"clock": "none", "deviation_us": None}}
    _check_nesting(trace)
    assert {event["cat"] for event in trace["traceEvents"] if event["ph"] == "X"} == {"host"}


def test_the_checks_find_what_is_wrong(g2p: Path, tmp_path: Path) -> None:
    trace = _traced(g2p, "lavapipe", tmp_path / "t.json", "--schedule", "replay")
    late = copy.deepcopy(trace)
    for event in late["traceEvents"]:
        if event.get("cat") == "dispatch":
            event["ts"] += 100_000
    with pytest.raises(AssertionError):
        _check_order(late)
    crossed = copy.deepcopy(trace)
    next(event for event in crossed["traceEvents"] if event["name"] == "wait")["dur"] += 100_000
    with pytest.raises(AssertionError):
        _check_nesting(crossed)


def test_a_folder_is_no_trace_file(g2p: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["profile", str(g2p), "--trace", str(tmp_path / "none" / "t.json")])
    assert "expected a file that can be written, got no such folder" in str(done.exception)


@given(
    st.integers(0, 2**64 - 1),
    st.integers(-(2**34), 2**34),
    st.sampled_from([36, 48, 64]),
    st.sampled_from([1.0, 83.33]),
)
def test_host_time_of_a_counter_value(ticks: int, apart: int, bits: int, period: float) -> None:
    """Before and after the known moment, over a wrap of the counter, whatever stands above its valid bits."""
    known = CalibratedTimestamps(ticks, 10**15, 0)
    later = (ticks + apart) % (1 << bits) | (ticks & ~((1 << bits) - 1))
    assert host_ns(later, known, period, bits) == pytest.approx(10**15 + apart * period)


@given(
    st.integers(0, 2**40 - 1),
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6)), min_size=1, max_size=9),
    st.sampled_from([1.0, 2.5]),
)
def test_an_estimated_clock_is_off_by_no_more_than_it_says(
    counter: int, submissions: list[tuple[int, int, int]], period: float
) -> None:
    """Submissions with so many nanoseconds before, within and after their one dispatch, on a counter of 40 bits."""
    begin, told, true = 10**12, [], []
    for before, within, after in submissions:
        end = begin + before + within + after
        ticks = [round(counter + (moment - 10**12) / period) % 2**40 for moment in (begin + before, end - after)]
        span = (Span("submit", begin, begin), Span("wait", end, end))
        told.append(Submission((), *span, [(ticks[0], ticks[1])], None))
        true.append((ticks[0], begin + before))
        begin = end + 1000
    known, deviation = estimated(told, period, 40)
    for ticks_, moment in true:
        assert abs(host_ns(ticks_, known, period, 40) - moment) <= deviation + 2 * period + 1
