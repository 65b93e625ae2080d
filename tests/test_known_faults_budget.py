"""A submit budget that is looked at after it was overshot: by a clock of the tests' own.

Met publicly: ggml-org/llama.cpp#26371, where a batch of work ended only once it had exceeded its threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from vkcat import chunks, schedules
from vkcat.chunks import Chunks
from vkcat.device.interface import Dispatch
from vkcat.graph import Graph
from vkcat.model import Rows
from vkcat.schedules import RUNNERS, Runner

LIMIT_MS = 100.0
# Milliseconds of a step, one after the other: the same, growing, falling, beyond the limit, and in turns.
COSTS = {
    "short": [0.01] * 400,
    "long": [45.0] * 40,
    "beyond the limit": [250.0] * 10,
    "growing": [1.05**at for at in range(100)],
    "falling": [1.05 ** (100 - at) for at in range(100)],
    "in turns": [1.0, 30.0] * 50,
}


STEP = Dispatch("step", (), (), None)


class _Clock:
    """Nanoseconds that go on by what is waited for."""

    def __init__(self) -> None:
        self.now = 10**9

    def __call__(self) -> int:
        return self.now


class _Submitted:
    """A recording whose steps end one after the other behind those of others."""

    def __init__(self, clock: _Clock, costs: Iterator[float]) -> None:
        self._clock, self._costs, self.steps = clock, costs, 0
        self.took_ms = 0.0

    def record(self, commands: list[Any]) -> None:
        self.steps = sum(isinstance(command, Dispatch) for command in commands)

    def submit(self) -> None:
        self.took_ms = sum(next(self._costs, 0.0) for _ in range(self.steps))

    def wait(self) -> None:
        self._clock.now += round(self.took_ms * 1e6)

    def close(self) -> None:
        pass


Round = tuple[int, float]
"""How many steps were submitted at once, and milliseconds that each took."""


def _beyond(rounds: list[Round], first: int) -> list[Round]:
    """Submissions of several steps that were foreseen to take longer than the limit: by what was known, which is of the
    first nothing, and then the time of the last one that ended before they were chosen."""
    found = [rounds[0]] if rounds[0][0] > first else []
    return found + [
        now for before, now in pairwise(rounds) if now[0] > 1 and now[0] * before[1] > LIMIT_MS * (1 + 1e-6)
    ]


def _unrolled_runner(monkeypatch: pytest.MonkeyPatch, costs: list[float], limit_ms: float) -> tuple[Runner, _Clock]:
    """The schedule by the clock, on a device whose steps take what `costs` says."""
    clock, left = _Clock(), iter(costs)
    monkeypatch.setattr(schedules, "perf_counter_ns", clock)
    device: Any = SimpleNamespace(rewrites=True, separate_wait=True, recording=lambda **_: _Submitted(clock, left))
    commands: Any = {"g": ([STEP], [STEP])}
    return RUNNERS["unrolled"](device, commands, timestamps=False, submit_limit_ms=limit_ms), clock


def _launches(monkeypatch: pytest.MonkeyPatch, costs: list[float], limit_ms: float) -> list[Round]:
    """What is launched, each when the one before has ended, until all steps have their time."""
    runner, clock = _unrolled_runner(monkeypatch, costs, limit_ms)
    rounds: list[Round] = []
    while (done := sum(count for count, _ in rounds)) < len(costs):
        count, before = runner.chunk("g"), clock.now
        runner.launch("g", done & 1, count)
        runner.finish()
        rounds.append((count, (clock.now - before) / 1e6 / count))
    runner.close()
    return rounds


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
def test_no_submission_of_steps_is_foreseen_to_pass_the_limit(
    monkeypatch: pytest.MonkeyPatch, costs: list[float]
) -> None:
    """The first is one step, the least there is; and the limit is used."""
    rounds = _launches(monkeypatch, costs, LIMIT_MS)
    assert _beyond(rounds, 1) == []
    if costs is COSTS["short"]:
        assert max(count for count, _ in rounds) == schedules.MOST_STEPS
    if costs is COSTS["long"]:
        assert {count for count, _ in rounds[1:]} == {2}


def test_a_submission_behind_another_counts_from_that_ones_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two under way, as a session has them: the second's time is not the sum of both."""
    runner, _ = _unrolled_runner(monkeypatch, [10.0] * 100, LIMIT_MS)
    for _ in range(4):
        for _ in range(2):
            runner.launch("g", 0, runner.chunk("g"))
        for _ in range(2):
            runner.finish()
    assert runner.chunk("g") == 8, "eight steps of 10 ms keep within 100 ms, sixteen do not"
    runner.close()


def _pieces(monkeypatch: pytest.MonkeyPatch, costs: list[float], limit_ms: float) -> list[Round]:
    """The pieces that a sequence of so many steps is read in, each as it was timed."""
    clock, left = _Clock(), iter(costs)
    rounds: list[Round] = []
    monkeypatch.setattr(chunks, "perf_counter_ns", clock)

    def make(kind: str, count: int) -> Rows:
        return Rows(Graph(f"{kind} x {count}"), (), None, ())

    def step(graph: str) -> None:
        count = int(graph.rpartition(" ")[2])
        took = sum(next(left, 0.0) for _ in range(count))
        clock.now += round(took * 1e6)
        rounds.append((count, took / count))

    steps: Any = SimpleNamespace(add=lambda graphs, values: None, step=step)
    runner: Any = SimpleNamespace(submit_limit_ms=limit_ms, planned=lambda graphs: graphs)
    read = Chunks(make, steps, runner, {})
    for at, count in read.cut("tokens", len(costs), 1):
        read.read("tokens", [], np.array([len(costs)]), at, count)
    return rounds


@pytest.mark.parametrize("costs", COSTS.values(), ids=COSTS)
def test_no_piece_of_a_sequence_is_foreseen_to_pass_the_limit(
    monkeypatch: pytest.MonkeyPatch, costs: list[float]
) -> None:
    """The first has two steps, of which nothing is known: twice the least there is."""
    rounds = _pieces(monkeypatch, costs, LIMIT_MS)
    assert _beyond(rounds, 2) == []
    if costs is COSTS["short"]:
        assert max(count for count, _ in rounds) == max(chunks.SIZES)


@pytest.mark.parametrize("run", [_launches, _pieces])
def test_a_budget_that_is_overshot_is_found(monkeypatch: pytest.MonkeyPatch, run: Callable[..., list[Round]]) -> None:
    """The tests above can fail: what is allowed ten times as much passes the limit."""
    assert _beyond(run(monkeypatch, COSTS["long"], 10 * LIMIT_MS), 2) != []
