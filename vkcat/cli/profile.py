"""`vkcat profile`."""

from __future__ import annotations

import json
import sys
from contextlib import ExitStack
from pathlib import Path

import click
from rich.console import Console
from rich.progress import Progress

from vkcat.cli import options
from vkcat.cli.console import console
from vkcat.cli.files import write_json, write_text
from vkcat.device.backends import BACKENDS, open_device
from vkcat.device.interface import Device
from vkcat.errors import InputError, mismatch
from vkcat.model import build, fused_model
from vkcat.profile import Measurement, measure, report
from vkcat.profile.page import page
from vkcat.profile.trace import clock_line, trace
from vkcat.schedules import SCHEDULES
from vkcat.stored import read_model


@click.command()
@options.model
@click.option("--schedule", default="eager,batched,replay", show_default=True, help="Schedules to compare.")
@click.option("--backend", default="vulkan", show_default=True, help=f"Backends to compare, of {', '.join(BACKENDS)}.")
@options.device
@click.option("--graph", help="Which step, as decode or encode, tokens or generate; without it the model's last.")
@click.option("--batch", type=click.IntRange(1, 4096), default=1, show_default=True, help="Streams side by side.")
@click.option("--runs", type=click.IntRange(1), default=200, show_default=True, help="Measured steps of each.")
@click.option("--warmup", type=click.IntRange(0), default=20, show_default=True, help="Steps before them.")
@options.fuse
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
    model: Path,
    schedule: str,
    backend: str,
    device: str | None,
    graph: str | None,
    batch: int,
    runs: int,
    warmup: int,
    fuse: bool,
    json_path: Path | None,
    html_path: Path | None,
    trace_path: Path | None,
) -> None:
    """Time a model's step: dispatch, submit and wait against kernel time.

    Schedules, backends and the device's floors take turns. Kernel times come from GPU timestamps, which
    only the vulkan backend has.
    """
    options.check_results(json_path)
    schedules = options.choices(schedule, SCHEDULES, "--schedule")
    backends = options.choices(backend, tuple(BACKENDS), "--backend")
    options.check_results(html_path, trace_path)
    stored = read_model(model)
    built = build(stored.config, batch)
    chosen = graph or list(built.graphs)[-1]
    if chosen not in built.graphs:
        raise InputError(mismatch("--graph", f"one of {', '.join(built.graphs)}", repr(graph)))
    with ExitStack() as stack:
        devices: list[Device] = []
        for name in backends:
            devices.append(open_device(name, device))
            stack.callback(devices[-1].close)
        if fuse:
            built = fused_model(devices[0].info, built)
        with _progress(warmup + runs) as progress:
            measurement = measure(
                devices,
                built,
                stored.weights,
                schedules,
                graph=chosen,
                warmup=warmup,
                runs=runs,
                advance=lambda count: progress.advance(progress.task_ids[0], count),
            )
        _show(measurement, devices)
        if json_path:
            write_json(json_path, report.as_json(measurement, devices))
        if html_path:
            write_text(html_path, page(report.as_json(measurement, devices)))
        if trace_path:
            traced = trace(devices, built, stored.weights, schedules, graph=chosen)
            write_text(trace_path, json.dumps(traced))
            for name, about in traced["otherData"]["clocks"].items():
                console().print(f"trace of {name}: {clock_line(about)}")


def _progress(total: int) -> Progress:
    progress = Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
    progress.add_task("steps", total=total)
    return progress


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
