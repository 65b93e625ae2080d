"""Submissions of many kinds of work, timed in turns: what a cost model is fitted to, and what it is held against."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from vkcat.config import ModelConfig
from vkcat.device.interface import Barrier, Command, Device, Dispatch, Memory, Slice
from vkcat.model import build, fused_model, initial_weights
from vkcat.profile.floors import timed
from vkcat.profile.measure import Subject
from vkcat.profile.vary import width, with_hidden
from vkcat.shader import load

EMPTY_DISPATCHES = (0, 1, 4, 16, 64)
SIZES, HELD_SIZES = (0.25, 0.5, 1.0), (0.375, 0.75)
STEPS, HELD_STEPS = (1, 2, 4, 8), (3, 6)
BATCHES = (1, 4)
"""Widths and batches as factors of the model's, and steps in a submission; what is held is no part of the fit."""

Array = NDArray[np.float64]
POLISHES = 10


class Work(Struct, frozen=True):
    """What a submission does: dispatches, barriers, bytes moved, and operations by kernel, both at most."""

    dispatches: int
    barriers: int
    nbytes: int = 0
    operations: Mapping[str, int] = field(default_factory=dict)

    def times(self, steps: int) -> Work:
        operations = {name: steps * count for name, count in self.operations.items()}
        return Work(steps * self.dispatches, steps * self.barriers, steps * self.nbytes, operations)


class Point(Struct, frozen=True):
    """A submission's work and its typical time in microseconds, wait included. `held_out`: a width or a number of steps
    that no other point that is fitted has."""

    label: str
    steps: int
    work: Work
    held_out: bool
    us: float


class _Timed(Struct):
    label: str
    steps: int
    work: Work
    held_out: bool
    submission: Callable[[], float]
    times: list[float] = field(default_factory=list)


def measure_points(
    device: Device,
    config: ModelConfig,
    *,
    graph: str,
    batch: int,
    warmup: int,
    runs: int,
    advance: Callable[[int], None] = lambda count: None,
) -> tuple[list[Point], Work]:
    """Empty dispatches with and without barriers, and steps of `config` with random weights at other widths, batches
    and numbers in a submission; with them the work of one step of `config` itself. All take turns in each of the
    rounds. `advance` is told of finished rounds.

    The device's recordings must be able to write a tensor more than once (`Device.rewrites`).
    """
    with ExitStack() as made:
        timed_points = _empty(device, made)
        step = Work(0, 0)
        for factor in sorted((*SIZES, *HELD_SIZES)):
            varied = with_hidden(config, max(round(width(config) * factor), 1))
            for more in BATCHES if factor in SIZES else BATCHES[:1]:
                steps = _steps(device, varied, graph, more * batch, factor, made)
                timed_points += steps
                step = steps[0].work if (factor, more) == (1, 1) else step
        for _ in range(warmup + runs):
            for point in timed_points:
                point.times.append(point.submission())
            advance(1)
        medians = typical(np.array([point.times[warmup:] for point in timed_points])) / 1e3
        return [
            Point(point.label, point.steps, point.work, point.held_out, us)
            for point, us in zip(timed_points, medians.tolist(), strict=True)
        ], step


def typical(times: Array) -> Array:
    """(points) of `times` (points, rounds): the median of each point, once each round's own slowness is divided out.

    What else runs on a machine slows whole rounds, and would move the points' plain medians by different amounts. This
    is median polish of the logarithms (Tukey, Exploratory Data Analysis, 1977, chapter 11).
    """
    logs = np.log(times)
    points, rounds = np.median(logs, axis=1), np.zeros(times.shape[1])
    for _ in range(POLISHES):
        rounds = np.median(logs - points[:, None], axis=0)
        rounds -= np.median(rounds)
        points = np.median(logs - rounds, axis=1)
    return np.asarray(np.exp(points))


def _empty(device: Device, made: ExitStack) -> list[_Timed]:
    """Each dispatch with a buffer of its own, which no barrier but its own concerns."""
    found = []
    buffer = device.buffer(256, Memory.DEVICE)
    made.callback(buffer.close)
    part = Slice(buffer, 0, 256)
    dispatch = device.dispatch("floor", load("floor"), [part], np.zeros(0, np.uint32), (), (1, 1, 1))
    made.callback(device.release, dispatch)
    for count in EMPTY_DISPATCHES:
        for barriers in (0, count) if count else (0,):
            each: list[Command] = [dispatch, Barrier((part,))] if barriers else [dispatch]
            recording = device.recording()
            made.callback(recording.close)
            recording.record(each * count)
            label = f"{count} empty dispatches, {barriers} barriers"
            found.append(_Timed(label, 1, Work(count, barriers), False, partial(timed, recording)))
    return found


def _steps(device: Device, config: ModelConfig, graph: str, batch: int, factor: float, made: ExitStack) -> list[_Timed]:
    model = fused_model(device.info, build(config, batch))
    subject = Subject(device, model, initial_weights(model, 0), "unrolled", model.graphs[graph])
    made.callback(subject.close)
    work = step_work(subject)
    return [
        _Timed(
            f"width {width(config)}, batch {batch}, {steps} in a submission",
            steps,
            work.times(steps),
            factor in HELD_SIZES or steps in HELD_STEPS,
            partial(subject.submission, steps),
        )
        for steps in sorted((*STEPS, *HELD_STEPS))
    ]


def step_work(subject: Subject) -> Work:
    """Of one step, counted from its commands and its graph."""
    kinds = Counter(type(command) for command in subject.commands)
    operations: Counter[str] = Counter()
    for node in subject.graph.nodes:
        operations[node.kernel.name] += node.operations
    nbytes = sum(node.bytes_moved for node in subject.graph.nodes)
    return Work(kinds[Dispatch], kinds[Barrier], nbytes, dict(operations))
