"""`vkcat profile`."""

from __future__ import annotations

import json
from contextlib import ExitStack, closing
from pathlib import Path

import click
from click.core import ParameterSource

from vkcat.cli import options
from vkcat.cli.compare import compare_profiles
from vkcat.cli.console import console
from vkcat.cli.files import write_json, write_text
from vkcat.cli.fit import fit_costs
from vkcat.cli.opening import one_device
from vkcat.cli.progress import progress
from vkcat.cli.sweep import sweep_sizes
from vkcat.device.backends import BACKENDS, open_device
from vkcat.device.interface import Device
from vkcat.errors import InputError, mismatch
from vkcat.model import build, fused_model
from vkcat.profile import Measurement, measure, report
from vkcat.profile.page import page
from vkcat.profile.sweep import AXES, BATCH, STEPS, parse_axis
from vkcat.profile.trace import clock_line, trace
from vkcat.schedules import SCHEDULES
from vkcat.stored import read_model

RUNS, ROUNDS = 200, 40


@click.command()
@click.argument("model", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.option("--schedule", default="eager,batched,replay", show_default=True, help="Schedules to compare.")
@click.option("--backend", default="vulkan", show_default=True, help=f"Backends to compare, of {', '.join(BACKENDS)}.")
@options.device
@click.option("--graph", help="Which step, as decode or encode, tokens or generate; without it the model's last.")
@click.option("--batch", type=click.IntRange(1, 4096), default=1, show_default=True, help="Streams side by side.")
@click.option(
    "--runs", type=click.IntRange(1), help=f"Measured steps of each: {RUNS}; rounds with --fit or --sweep: {ROUNDS}."
)
@click.option("--warmup", type=click.IntRange(0), default=20, show_default=True, help="Steps before them.")
@options.fuse
@click.option(
    "--compare",
    nargs=2,
    metavar="A.json B.json",
    help="Instead of a model: what changed between two files of --json, or FILE:SCHEDULE of them.",
)
@click.option(
    "--fit",
    is_flag=True,
    help="Fit what a submission, a dispatch, a barrier, bytes and operations cost, with its error.",
)
@click.option(
    "--sweep",
    metavar="AXIS=N,N...",
    help=f"Time the model, with random weights, at several sizes: {', '.join(AXES)}; and how its time grows with them.",
)
@options.json_file
@click.option(
    "--html",
    "html_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write the result as one page with drawings, which needs no network.",
)
@click.option(
    "--trace",
    "trace_path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write some further steps as a trace for ui.perfetto.dev: host and device on one clock.",
)
def profile(
    model: Path | None,
    schedule: str,
    backend: str,
    device: str | None,
    graph: str | None,
    batch: int,
    runs: int | None,
    warmup: int,
    fuse: bool,
    compare: tuple[str, str] | None,
    fit: bool,
    sweep: str | None,
    json_path: Path | None,
    html_path: Path | None,
    trace_path: Path | None,
) -> None:
    """Time a model's step: dispatch, submit and wait against kernel time.

    Schedules, backends and the device's floors and ceilings take turns. Kernel times come from GPU timestamps, which
    only the vulkan backend has. docs/profiling.md says what each figure includes.
    """
    options.check_results(json_path)
    if compare:
        _without("--compare", "model", *(set(click.get_current_context().params) - {"model", "compare", "json_path"}))
        compare_profiles(*compare, json_path)
        return
    if not model:
        raise click.UsageError("expected a model, or --compare with two files of --json")
    schedules = options.choices(schedule, SCHEDULES, "--schedule")
    backends = options.choices(backend, tuple(BACKENDS), "--backend")
    options.check_results(html_path, trace_path)
    if fit and sweep:
        raise click.UsageError("expected --fit or --sweep, got both")
    swept = parse_axis(sweep) if sweep else None
    if fit or (swept and swept[0] == STEPS):
        _without("--fit" if fit else f"--sweep {STEPS}", "schedule")
    if swept and swept[0] == BATCH:
        _without(f"--sweep {BATCH}", "batch")
    if fit or swept:
        _without("--fit" if fit else "--sweep", "fuse", "html_path", "trace_path")
    stored = read_model(model)
    built = build(stored.config, batch)
    chosen = graph or list(built.graphs)[-1]
    if chosen not in built.graphs:
        raise InputError(mismatch("--graph", f"one of {', '.join(built.graphs)}", repr(graph)))
    if fit:
        with closing(one_device(backends, device, several_steps=True)) as opened:
            fit_costs(opened, stored.config, chosen, batch, warmup, runs or ROUNDS, json_path)
        return
    if swept:
        axis, values = swept
        with closing(one_device(backends, device, several_steps=axis == STEPS)) as opened:
            sweep_sizes(
                opened,
                stored.config,
                schedules,
                axis,
                values,
                graph=chosen,
                batch=batch,
                warmup=warmup,
                runs=runs or ROUNDS,
                json_path=json_path,
            )
        return
    runs = runs or RUNS
    with ExitStack() as stack:
        devices: list[Device] = []
        for name in backends:
            devices.append(open_device(name, device))
            stack.callback(devices[-1].close)
        if fuse:
            built = fused_model(devices[0].info, built)
        with progress("steps", warmup + runs) as advance:
            measurement = measure(
                devices,
                built,
                stored.weights,
                schedules,
                graph=chosen,
                warmup=warmup,
                runs=runs,
                advance=advance,
            )
        _show(measurement, devices)
        document = report.as_json(measurement, devices) | {"model": stored.config.name}
        if json_path:
            write_json(json_path, document)
        if html_path:
            write_text(html_path, page(document))
        if trace_path:
            traced = trace(devices, built, stored.weights, schedules, graph=chosen)
            write_text(trace_path, json.dumps(traced))
            for name, about in traced["otherData"]["clocks"].items():
                console().print(f"trace of {name}: {clock_line(about)}")


def _without(option: str, *others: str) -> None:
    """Raises `UsageError` when one of the others was given too: with this option it would do nothing."""
    context = click.get_current_context()
    sources = {name: context.get_parameter_source(name) for name in others}
    for parameter in context.command.params:
        if sources.get(parameter.name or "") is ParameterSource.COMMANDLINE:
            given = "MODEL" if parameter.name == "model" else parameter.opts[-1]
            raise click.UsageError(f"expected {option} without {given}")


def _show(measurement: Measurement, devices: list[Device]) -> None:
    out = console()
    for line in report.heading(measurement, devices):
        out.print(line)
    for device in devices:
        if not device.timestamps:
            out.print(f"{device.backend}: no GPU timestamps, so kernel time and overhead are not known")
    for table in report.tables(measurement):
        out.print(table)
    out.print(report.NOTE)
