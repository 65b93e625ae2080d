"""How a step's time grows with one size of the model: all sizes in one run, where they take turns.

A growth exponent is the slope of log time over log size by least squares: 0 for what does not depend on the size, 1 for
what is proportional to it, 2 for what goes with its square. Over a range where a fixed cost fades it lies between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from rich.table import Table

from vkcat.config import ModelConfig
from vkcat.device.interface import Device
from vkcat.errors import InputError, mismatch
from vkcat.model import build, fused_model, initial_weights
from vkcat.profile.bootstrap import SEED, interval, medians
from vkcat.profile.layout import titled
from vkcat.profile.measure import Subject
from vkcat.profile.points import step_work
from vkcat.profile.samples import BLOCK, Series, series
from vkcat.profile.spread import Spread, quantiles
from vkcat.profile.vary import AXES as SIZES

Array = NDArray[np.float64]

BATCH, STEPS = "batch", "steps"
AXES = (*SIZES, BATCH, STEPS)
"""What can be swept: a size of the configuration, streams side by side, steps in one submission."""

SUBMISSION = "submission"
COUNTED = ("bytes", "operations")


class Size(Struct, frozen=True):
    """One size under one schedule: counts of a step (of a submission, when steps are swept) and microseconds by name:
    of a "step", a "submission", or all calls of a kernel in a step."""

    value: int
    schedule: str
    dispatches: int
    nbytes: int
    operations: int
    us: dict[str, Spread]


class Growth(Struct, frozen=True):
    """Exponent with its 95% interval; of `bytes` and `operations`, which are counted, the interval is nothing wide."""

    schedule: str
    name: str
    exponent: float
    low: float
    high: float


class Sweep(Struct, frozen=True):
    """`left_out` names kernels that some sizes do not have."""

    axis: str
    warmup: int
    runs: int
    graph: str
    sizes: list[Size]
    growth: list[Growth]
    left_out: list[str]


def parse_axis(text: str) -> tuple[str, list[int]]:
    """`hidden=64,128` as its name and values in order, each once. Raises `InputError`."""
    axis, _, values = text.partition("=")
    try:
        numbers = sorted({int(value) for value in values.split(",")})
    except ValueError:
        numbers = []
    if axis not in AXES or len(numbers) < 2 or numbers[0] < 1:
        expected = f"one of {', '.join(AXES)}, = and at least two whole numbers above 0, as hidden=64,128,256"
        raise InputError(mismatch("--sweep", expected, repr(text)))
    return axis, numbers


class _Run(Struct, frozen=True):
    """One size under one schedule, and how it is timed."""

    value: int
    schedule: str
    subject: Subject
    sample: Callable[[], None]
    samples: Callable[[int], list[Series]]


def sweep(
    device: Device,
    config: ModelConfig,
    schedules: Sequence[str],
    axis: str,
    values: Sequence[int],
    *,
    graph: str,
    batch: int,
    warmup: int,
    runs: int,
    advance: Callable[[int], None] = lambda count: None,
) -> Sweep:
    """Time `config` with random weights at each value. When steps are swept, submissions of so many take the place of
    schedules, on a device whose recordings can write a tensor more than once. `advance` is told of finished rounds.

    Raises `InputError` or `ModelError` for a value that makes no model.
    """
    with ExitStack() as made:
        if axis == STEPS:
            swept = _submissions(_subject(device, config, batch, "unrolled", graph, made), values)
        else:
            varied = [(value, *_varied(config, axis, value, batch)) for value in values]
            swept = [
                _steps(value, _subject(device, one, streams, schedule, graph, made))
                for schedule in schedules
                for value, one, streams in varied
            ]
        for at in range(0, warmup + runs, BLOCK):
            count = min(BLOCK, warmup + runs - at)
            for run in swept:
                for _ in range(count):
                    run.sample()
            advance(count)
        return _swept(axis, graph, warmup, runs, swept)


def _varied(config: ModelConfig, axis: str, value: int, batch: int) -> tuple[ModelConfig, int]:
    return (config, value) if axis == BATCH else (SIZES[axis](config, value), batch)


def _subject(device: Device, config: ModelConfig, batch: int, schedule: str, graph: str, made: ExitStack) -> Subject:
    model = fused_model(device.info, build(config, batch))
    subject = Subject(device, model, initial_weights(model, 0), schedule, model.graphs[graph])
    made.callback(subject.close)
    return subject


def _steps(value: int, subject: Subject) -> _Run:
    return _Run(value, subject.schedule, subject, subject.sample, subject.samples)


def _submissions(subject: Subject, values: Sequence[int]) -> list[_Run]:
    return [_submission(subject, value) for value in values]


def _submission(subject: Subject, steps: int) -> _Run:
    times: list[float] = []

    def samples(warmup: int) -> list[Series]:
        return [series(SUBMISSION, subject.device.backend, SUBMISSION, times[warmup:])]

    return _Run(steps, SUBMISSION, subject, lambda: times.append(subject.submission(steps)), samples)


def _swept(axis: str, graph: str, warmup: int, runs: int, swept: Sequence[_Run]) -> Sweep:
    sizes, growth, left_out = [], [], []
    for schedule in dict.fromkeys(run.schedule for run in swept):
        own = [run for run in swept if run.schedule == schedule]
        times = [{one.name: np.array(one.us) for one in run.samples(warmup)} for run in own]
        counted = [_size(run, found, axis) for run, found in zip(own, times, strict=True)]
        sizes += counted
        logs = np.log([run.value for run in own])
        for name in dict.fromkeys(name for found in times for name in found):
            if all(name in found for found in times):
                rounds = np.stack([found[name] for found in times], axis=1)
                growth.append(Growth(schedule, name, *exponent(logs, rounds)))
            else:
                left_out.append(f"{schedule} {name}")
        for name, counts in zip(
            COUNTED, ([one.nbytes for one in counted], [one.operations for one in counted]), strict=True
        ):
            exact = float(_slopes(logs, np.array([counts], np.float64))[0])
            growth.append(Growth(schedule, name, exact, exact, exact))
    return Sweep(axis, warmup, runs, graph, sizes, growth, left_out)


def _size(run: _Run, times: dict[str, Array], axis: str) -> Size:
    work = step_work(run.subject).times(run.value if axis == STEPS else 1)
    us = {name: quantiles(values.tolist()) for name, values in times.items()}
    return Size(run.value, run.schedule, work.dispatches, work.nbytes, sum(work.operations.values()), us)


def exponent(logs: Array, rounds: Array) -> tuple[float, float, float]:
    """The slope over `logs` (sizes) of the medians of `rounds` (rounds, sizes), and its 95% interval."""
    resampled, blocks = medians(rounds, np.random.default_rng(SEED))
    low, high = interval(_slopes(logs, resampled), blocks)
    return float(_slopes(logs, np.median(rounds, axis=0)[None])[0]), low, high


def _slopes(logs: Array, values: Array) -> Array:
    """Of the logarithm of each row of `values` (n, sizes), by least squares."""
    centred = logs - logs.mean()
    return np.asarray(np.log(values) @ centred / (centred @ centred))


def tables(found: Sweep) -> list[Table]:
    names = list(dict.fromkeys(name for size in found.sizes for name in size.us))
    sizes = titled(found.axis, "schedule", "dispatches", "bytes", "operations", names[0], title="sizes, us")
    for size in found.sizes:
        counts = str(size.dispatches), f"{size.nbytes:,}", f"{size.operations:,}"
        sizes.add_row(str(size.value), size.schedule, *counts, str(size.us[names[0]]))
    kernels = titled(found.axis, "schedule", "kernel", "us", title="kernels, us a step")
    for size in found.sizes:
        for name, spread in list(size.us.items())[1:]:
            kernels.add_row(str(size.value), size.schedule, name, str(spread))
    growth = titled("schedule", "of", "exponent", "95% interval", title=f"growth with {found.axis}")
    for one in found.growth:
        counted = one.name in COUNTED
        growth.add_row(
            one.schedule, one.name, f"{one.exponent:.2f}", "counted" if counted else f"{one.low:.2f} to {one.high:.2f}"
        )
    return [sizes, kernels, growth] if kernels.row_count else [sizes, growth]


def as_json(found: Sweep) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(found)
    return document
