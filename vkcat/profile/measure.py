"""Time a model's step under each schedule and backend, one after the other in every round.

A step is what a session does for one: the host writes the step's inputs, submits, waits, and reads the outputs. Of a
model that reads its own tokens it is a part of what a session does for many: steps of `replay` that overlap, or as many
as `unrolled` submits at once. What is compared takes turns in blocks of a few steps, floors included, so that a
disturbance of the machine meets all alike.

Timestamps cost time themselves (on software drivers as much as a small kernel), so a step is timed without them, and
the kernels in the step after it, with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from time import perf_counter_ns
from typing import Any, Protocol, TypeVar
from uuid import uuid4

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from vkcat.device.interface import Command, Device
from vkcat.device.timestamps import check_within
from vkcat.executor import Executor
from vkcat.flights import GRAPH
from vkcat.graph import Graph, Role
from vkcat.model import Model
from vkcat.ops.gates import RESTART, STEP
from vkcat.profile.ceilings import CeilingProbe, Ceilings, weight_bytes
from vkcat.profile.floors import FloorProbe, Floors
from vkcat.profile.roofline import Roofline, roofline
from vkcat.profile.samples import BLOCK, WHOLE_STEP, Series, series
from vkcat.profile.slope import ON_DEVICE, Outside, SlopeProbe
from vkcat.profile.spread import Spread, spread

Array = NDArray[Any]

MOST_FILLING = 256

OVERLAPPED = 8
"""Launches of a step that are timed as one where the next begins before the last has finished."""


class _Closable(Protocol):
    def close(self) -> None: ...


class _Sampled(Protocol):
    def sample(self, count: int) -> None: ...


Part = TypeVar("Part", bound=_Closable)


class ScheduleTimes(Struct, frozen=True):
    """Microseconds of a step. `kernel_us` and `overhead_us` are None without GPU timestamps, `submit_us` and `wait_us`
    where the backend does both in one call: then the whole is in `submit_and_wait_us`."""

    name: str
    backend: str
    dispatches_per_step: int
    submits_per_step: float
    step_us: Spread
    kernel_us: Spread | None
    overhead_us: Spread | None
    overhead_percent: float | None
    record_us: Spread
    submit_us: Spread | None
    wait_us: Spread | None
    submit_and_wait_us: Spread


class KernelTimes(Struct, frozen=True):
    """GPU microseconds of one kernel in a step, the bytes it moves and the operations it does at most: all its calls
    together."""

    name: str
    schedule: str
    calls_per_step: int
    bytes_per_step: int
    operations_per_step: int
    time_us: Spread
    share_percent: float


class Measurement(Struct, frozen=True):
    """`run` names the run, and nothing else; `samples` are all times of steps, kernels and controls."""

    warmup: int
    runs: int
    graph: str
    batch: int
    bytes_per_step: int
    floors: list[Floors]
    schedules: list[ScheduleTimes]
    kernels: list[KernelTimes]
    ceilings: list[Ceilings]
    roofline: list[Roofline]
    step_roofline: list[Roofline]
    outside: list[Outside]
    run: str
    samples: list[Series]


class _Series(Struct):
    """Nanoseconds of each run, warm-up first."""

    step: list[float] = field(default_factory=list)
    record: list[float] = field(default_factory=list)
    submit: list[float] = field(default_factory=list)
    wait: list[float] = field(default_factory=list)
    kernels: list[list[float]] = field(default_factory=list)
    submits: float = 0


class Subject:
    """One schedule on one backend, stepped as a session steps it."""

    def __init__(self, device: Device, model: Model, weights: Mapping[str, Array], schedule: str, graph: Graph) -> None:
        self.device, self.schedule, self.graph = device, schedule, graph
        self.series = _Series()
        graphs = tuple(model.graphs.values())
        self._executor = executor = Executor(
            device, graphs, schedule, values=model.values(weights), timestamps=device.timestamps
        )
        first = next(iter(model.graphs.values()))
        zeros = {
            tensor: np.zeros(tensor.shape, tensor.dtype)
            for tensor in (*first.tensors(), *graph.tensors(), *model.starts, *model.shared.kept.values())
            if tensor.role in (Role.INPUT, Role.STATE, Role.MEMORY)
        }
        for tensor, values in zeros.items():
            executor.write(tensor, values)
        # Restart the states, so that what is timed computes on real numbers.
        executor.write(model.mode, np.full(model.batch, RESTART, np.uint32))
        executor.step(first.name)
        mode = np.full(model.batch, STEP, np.uint32)
        executor.write(model.mode, mode)
        for tensor in model.starts:
            executor.write(tensor, zeros[tensor])
        self._feeds = [(tensor, mode if tensor is model.mode else zeros[tensor]) for tensor in model.feeds[graph.name]]
        self._results = model.results.get(graph.name, ())
        self._overlaps = graph.name == GRAPH and executor.overlaps(GRAPH)
        self._fill_rings()

    def _fill_rings(self) -> None:
        """Step until each ring is full, if it is not too long: with what is in it grows the time of a step."""
        longest = max((node.sizes.get("W", 0) for node in self.graph.nodes), default=0)
        for _ in range(min(longest, MOST_FILLING)):
            self._executor.step(self.graph.name)

    def _write_inputs(self) -> None:
        """What the host sets before each step: when a model reads its own tokens, nothing."""
        for tensor, values in self._feeds:
            self._executor.write(tensor, values)

    def _read_outputs(self) -> None:
        for tensor in self._results:
            self._executor.read(tensor)

    def traced(self, part: Callable[[str], AbstractContextManager[None]]) -> None:
        """The step of a `sample`, untimed, with each part of the host's within `part`."""
        executor, graph = self._executor, self.graph.name
        with part("step"):
            with part("write inputs"):
                self._write_inputs()
            executor.launch(graph, executor.chunk(graph))
            executor.finish()
            with part("read outputs"):
                self._read_outputs()

    def sample(self) -> None:
        """Time a step, or as many as go into one submission or overlap, and the kernels of one more after it."""
        executor, series, graph = self._executor, self.series, self.graph.name
        chunk = executor.chunk(graph)
        launches = OVERLAPPED if self._overlaps and chunk == 1 else 1
        count = launches * chunk
        begin = perf_counter_ns()
        self._write_inputs()
        self._run(launches, chunk)
        series.step.append((perf_counter_ns() - begin) / count)
        times = executor.host_times
        series.record.append(times.record / count)
        series.submit.append(times.submit / count)
        series.wait.append(times.wait / count)
        series.submits = times.submits / count
        if self.device.timestamps:
            self._write_inputs()
            begin = perf_counter_ns()
            kernels = executor.timed_step(graph)
            check_within(kernels, perf_counter_ns() - begin)
            series.kernels.append(kernels)

    def _run(self, launches: int, chunk: int) -> None:
        """Launch so many times `chunk` steps, each before the one before has finished, and read what each gives."""
        executor, graph = self._executor, self.graph.name
        executor.launch(graph, chunk)
        for left in reversed(range(launches)):
            if left:
                executor.launch(graph, chunk)
            executor.finish()
            self._read_outputs()

    @property
    def commands(self) -> Sequence[Command]:
        """Those of an even step."""
        return self._executor.commands[self.graph.name][0]

    def submission(self, count: int) -> float:
        """Nanoseconds of so many steps in one submission, of a schedule that can do that."""
        begin = perf_counter_ns()
        self._executor.launch(self.graph.name, count)
        self._executor.finish()
        return perf_counter_ns() - begin

    def times(self, warmup: int) -> ScheduleTimes:
        series = self.series
        step = np.array(series.step[warmup:])
        both = (np.array(series.submit[warmup:]) + np.array(series.wait[warmup:])).tolist()
        kernel = overhead = percent = None
        if self.device.timestamps:
            total = np.array([sum(times) for times in series.kernels[warmup:]])
            kernel, overhead = spread(total.tolist()), spread((step - total).tolist())
            percent = 100 * float(np.median((step - total) / step))
        apart = self.device.separate_wait
        return ScheduleTimes(
            name=self.schedule,
            backend=self.device.backend,
            dispatches_per_step=len(self.graph.nodes),
            submits_per_step=series.submits,
            step_us=spread(step.tolist()),
            kernel_us=kernel,
            overhead_us=overhead,
            overhead_percent=percent,
            record_us=spread(series.record[warmup:]),
            submit_us=spread(series.submit[warmup:]) if apart else None,
            wait_us=spread(series.wait[warmup:]) if apart else None,
            submit_and_wait_us=spread(both),
        )

    def kernels(self, warmup: int) -> list[KernelTimes]:
        if not self.device.timestamps:
            return []
        names = [node.kernel.name for node in self.graph.nodes]
        times = self._by_kernel(warmup)
        total = float(np.median(sum(times.values())))
        found = []
        for name, own in times.items():
            share = 100 * float(np.median(own)) / total if total else 0.0
            moved = sum(node.bytes_moved for node in self.graph.nodes if node.kernel.name == name)
            done = sum(node.operations for node in self.graph.nodes if node.kernel.name == name)
            found.append(KernelTimes(name, self.schedule, names.count(name), moved, done, spread(own.tolist()), share))
        return found

    def samples(self, warmup: int) -> list[Series]:
        """The steps, then the kernels that `kernels` has, in the same order."""
        name, backend = self.schedule, self.device.backend
        found = [series(name, backend, WHOLE_STEP, self.series.step[warmup:])]
        if self.device.timestamps:
            found += [series(name, backend, kernel, own.tolist()) for kernel, own in self._by_kernel(warmup).items()]
        return found

    def _by_kernel(self, warmup: int) -> dict[str, Array]:
        """Nanoseconds of all calls of each kernel in each run."""
        names = [node.kernel.name for node in self.graph.nodes]
        table = np.array(self.series.kernels[warmup:])
        return {
            name: table[:, [at for at, other in enumerate(names) if other == name]].sum(axis=1)
            for name in dict.fromkeys(names)
        }

    def close(self) -> None:
        self._executor.close()


def _under(times: KernelTimes, top: Ceilings) -> Roofline:
    """Only one backend has timestamps, so that there is one set of ceilings at most."""
    return roofline(
        times.name,
        times.schedule,
        times.calls_per_step,
        times.bytes_per_step,
        times.operations_per_step,
        times.time_us.median,
        top,
    )


def _step_under(graph: Graph, slope: SlopeProbe, top: Ceilings, warmup: int) -> Roofline:
    """A whole step on the device, by its time without timestamps."""
    nbytes, operations = (
        sum(counts) for counts in zip(*((node.bytes_moved, node.operations) for node in graph.nodes), strict=True)
    )
    us = slope.device(warmup).median
    return roofline("step", ON_DEVICE, len(graph.nodes), nbytes, operations, us, top)


def _take_turns(
    subjects: Sequence[tuple[Subject, FloorProbe]],
    parts: Sequence[_Sampled],
    rounds: int,
    advance: Callable[[int], None],
) -> None:
    """Blocks of a few rounds of each, until each has had all."""
    for at in range(0, rounds, BLOCK):
        count = min(BLOCK, rounds - at)
        for part in parts:
            part.sample(count)
        for subject, probe in subjects:
            for _ in range(count):
                subject.sample()
                probe.sample_empty()
        advance(count)


def measure(
    devices: Sequence[Device],
    model: Model,
    weights: Mapping[str, Array],
    schedules: Sequence[str],
    *,
    graph: str,
    warmup: int,
    runs: int,
    advance: Callable[[int], None] = lambda count: None,
) -> Measurement:
    """Measure every schedule on every device. `advance` is told of finished runs."""
    chosen = model.graphs[graph]
    with ExitStack() as made:

        def kept(part: Part) -> Part:
            made.callback(part.close)
            return part

        def subject(device: Device, schedule: str) -> Subject:
            return kept(Subject(device, model, weights, schedule, chosen))

        probes = [kept(FloorProbe(device)) for device in devices]
        subjects = [
            (subject(device, schedule), probe)
            for device, probe in zip(devices, probes, strict=True)
            for schedule in schedules
        ]
        slopes = [
            SlopeProbe(device.backend, subject(device, "unrolled").submission) for device in devices if device.rewrites
        ]
        peaks = [kept(CeilingProbe(device, weight_bytes(chosen))) for device in devices if device.timestamps]
        _take_turns(subjects, [*probes, *slopes, *peaks], warmup + runs, advance)
        ceilings = [peak.ceilings(warmup) for peak in peaks]
        kernels = [times for one, _ in subjects for times in one.kernels(warmup)]
        return Measurement(
            warmup=warmup,
            runs=runs,
            graph=graph,
            batch=model.batch,
            bytes_per_step=sum(node.bytes_moved for node in chosen.nodes),
            floors=[probe.floors(warmup) for probe in probes],
            schedules=[one.times(warmup) for one, _ in subjects],
            kernels=kernels,
            ceilings=ceilings,
            roofline=[_under(times, top) for times in kernels for top in ceilings],
            step_roofline=[_step_under(chosen, slope, top, warmup) for slope in slopes for top in ceilings],
            outside=[
                slope.outside(one.schedule, one.series.step, warmup)
                for one, _ in subjects
                for slope in slopes
                if slope.backend == one.device.backend
            ],
            run=uuid4().hex,
            samples=[
                *(times for one, _ in subjects for times in one.samples(warmup)),
                *(probe.control(warmup) for probe in probes),
                *(peak.control(warmup) for peak in peaks),
            ],
        )
