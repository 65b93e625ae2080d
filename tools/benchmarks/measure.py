"""Measure a scene: contenders take turns, a block of steps each, round by round; first each must be right.

A disturbance of the machine meets all alike this way, and what is compared is compared within a round. Rounds in which
other processes took much of the processor are taken again.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import comb

import numpy as np

from benchmarks.contender import DEVICE_TIMES, Entry, Settings
from benchmarks.disturbance import Disturbance
from benchmarks.processes import ContenderError, Environments, Worker, close_all
from benchmarks.scene import TOLERANCE, Expected, Scene
from vkcat.profile.spread import Spread, spread

CONFIDENCE = 0.95

WARMUP = 4
"""Rounds that do not count: recordings are made there, of more and more steps."""

QUIET, TRIES = 0.05, 3
"""Rounds go on until there are enough in which others took no more than this share of the processor, or until there are
so many times as many as asked for. The least disturbed count."""

PAUSE_S = 0.005
"""Between turns: threads that libraries keep spinning after their work have gone to sleep by then."""


@dataclass(frozen=True)
class Effort:
    """`rounds` of blocks of `block` steps, after `checked` steps that must be right."""

    rounds: int
    block: int
    checked: int


@dataclass(frozen=True)
class Estimate:
    """A median in microseconds, and an interval that holds the true one with at least the confidence above."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Times:
    """Microseconds of a step. `rounds_us` has each round's; `device_us` is by the contender's own clock, where it has
    one; `overhead_us` is the step without the device time of its round, for who runs vkcat's shaders.
    """

    name: str
    kind: str
    what: str
    versions: Mapping[str, str]
    notes: Sequence[str]
    error: float
    step_us: Spread
    device_us: Spread | None
    overhead_us: Estimate | None
    rounds_us: list[float]


@dataclass(frozen=True)
class LeftOut:
    """A contender that was not measured. `broken` when something is wrong with it, rather than not there."""

    name: str
    why: str
    broken: bool


@dataclass(frozen=True)
class SceneTimes:
    """`device_us` is what a step of vkcat's shaders, fused or not, costs the device alone (benchmarks/device_time.py),
    `disturbance` the greatest share of the processor that others took in a round, where the system tells.
    """

    model: str
    batch: int
    rounds: int
    block: int
    checked: int
    tolerance: float
    disturbance: float | None
    device_us: dict[str, Spread]
    contenders: list[Times]
    left_out: list[LeftOut]


def estimate(nanoseconds: Sequence[float]) -> Estimate:
    """The interval is from one order statistic to another, whatever the distribution: so many values lie below the true
    median with the binomial distribution's probability (Conover, Practical Nonparametric Statistics, section 3.2).
    Fewer than six values give their range.
    """
    ordered = sorted(ns / 1e3 for ns in nanoseconds)
    n, outside, rank = len(ordered), 0.0, 0
    while outside + comb(n, rank) / 2**n <= (1 - CONFIDENCE) / 2:
        outside += comb(n, rank) / 2**n
        rank += 1
    at = max(rank - 1, 0)
    return Estimate(statistics.median(ordered), ordered[at], ordered[n - 1 - at])


class _Turns:
    """A checked contender, and nanoseconds a step of each round."""

    def __init__(self, worker: Worker, error: float) -> None:
        self.worker, self.error = worker, error
        self.step: list[float] = []
        self.device: list[float] = []

    def take(self, block: int) -> None:
        probe = self.worker.entry in DEVICE_TIMES.values()
        if not probe:
            self.step.append(self.worker.ask("time", block)["ns"] / block)
        # A clock of its own needs fewer steps than a slope.
        own = self.worker.ask("device", block if probe else max(block // 4, 1))["ns"]
        if own is not None:
            self.device.append(own)
        time.sleep(PAUSE_S)

    def keep(self, rounds: Sequence[int]) -> None:
        """Only these rounds count."""
        self.step = [self.step[at] for at in rounds if self.step]
        self.device = [self.device[at] for at in rounds if self.device]

    def times(self, device: Mapping[str, Sequence[float]]) -> Times:
        """`device` is each round's device time by the kind of shaders."""
        entry = self.worker.entry
        overhead = None
        if entry.kind in device:
            overhead = estimate((np.array(self.step) - np.array(self.device or device[entry.kind])).tolist())
        return Times(
            name=entry.name,
            kind=entry.kind,
            what=entry.what,
            versions=self.worker.versions,
            notes=self.worker.notes,
            error=self.error,
            step_us=spread(self.step),
            device_us=spread(self.device) if self.device else None,
            overhead_us=overhead,
            rounds_us=[ns / 1e3 for ns in self.step],
        )


def measure(
    scene: Scene,
    expected: Expected,
    entries: Sequence[Entry],
    environments: Environments,
    settings: Settings,
    effort: Effort,
    advance: Callable[[str], None],
) -> SceneTimes:
    """`advance` is told what is done next, once for each check and each turn.

    Raises `ContenderError` when the device time itself cannot be had.
    """
    workers: list[Worker] = []
    left_out: list[LeftOut] = []
    try:
        for entry in (*DEVICE_TIMES.values(), *entries):
            try:
                workers.append(Worker(entry, environments.python_for(entry), scene, settings))
            except ContenderError as error:
                left_out.append(_left_out(entry, error))
        turns: list[_Turns] = []
        for worker in workers:
            advance(f"checking {worker.entry.name}")
            try:
                turns.append(_checked(worker, expected, effort))
            except ContenderError as error:
                left_out.append(_left_out(worker.entry, error))
        turns, disturbance = _take_turns(turns, left_out, effort, advance)
        probes, rest = turns[: len(DEVICE_TIMES)], turns[len(DEVICE_TIMES) :]
        device = {probe.worker.entry.kind: probe.device for probe in probes}
        return SceneTimes(
            model=scene.model,
            batch=scene.batch,
            rounds=effort.rounds,
            block=effort.block,
            checked=effort.checked,
            tolerance=TOLERANCE,
            disturbance=disturbance,
            device_us={kind: spread(times) for kind, times in device.items()},
            contenders=[turn.times(device) for turn in rest],
            left_out=left_out,
        )
    finally:
        close_all(workers)


def _left_out(entry: Entry, error: ContenderError) -> LeftOut:
    if entry in DEVICE_TIMES.values():
        raise ContenderError(f"{entry.name}: {error}", mendable=error.mendable)
    return LeftOut(entry.name, str(error), broken=not error.mendable)


def _checked(worker: Worker, expected: Expected, effort: Effort) -> _Turns:
    """Raises `ContenderError` unless it draws the reference's tokens, from logits that are the reference's."""
    worker.ready()
    answer = worker.ask("check", effort.checked)
    error = expected.error(np.array(answer["tokens"]), np.array(answer["logits"]))
    if error > TOLERANCE:
        wrong = "another token" if error == float("inf") else f"a logit off by {error:.1e} of the greatest"
        raise ContenderError(f"{wrong} than the reference's, where {TOLERANCE:.0e} is allowed", mendable=False)
    return _Turns(worker, error)


def _take_turns(
    turns: list[_Turns], left_out: list[LeftOut], effort: Effort, advance: Callable[[str], None]
) -> tuple[list[_Turns], float | None]:
    """Returns those that lasted with the rounds that count, and the greatest disturbance in them."""
    for _ in range(WARMUP):
        turns = _round(turns, 0, left_out, effort, advance)
    for turn in turns:
        turn.keep([])
    disturbance = Disturbance([turn.worker.pid for turn in turns])
    shares: list[float] = []
    while len(shares) < TRIES * effort.rounds and sum(share <= QUIET for share in shares) < effort.rounds:
        turns = _round(turns, len(shares), left_out, effort, advance)
        share = disturbance.look()
        shares.append(0.0 if share is None else share)
    kept = sorted(sorted(range(len(shares)), key=lambda at: shares[at])[: effort.rounds])
    for turn in turns:
        turn.keep(kept)
    return turns, None if share is None else max(shares[at] for at in kept)


def _round(
    turns: Sequence[_Turns], at: int, left_out: list[LeftOut], effort: Effort, advance: Callable[[str], None]
) -> list[_Turns]:
    """A turn for each, another first in each round. Returns those that lasted."""
    first = at % len(turns)
    lasting = []
    for turn in (*turns[first:], *turns[:first]):
        advance(turn.worker.entry.name)
        try:
            turn.take(effort.block)
            lasting.append(turn)
        except ContenderError as error:
            left_out.append(_left_out(turn.worker.entry, error))
    return [turn for turn in turns if turn in lasting]
