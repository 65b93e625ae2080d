"""A measurement as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from rich.table import Table

from vkcat.device.interface import Device
from vkcat.device.layers import active_layers
from vkcat.profile import roofline, slope
from vkcat.profile.layout import cell, titled
from vkcat.profile.measure import Measurement

NOTE = (
    "us: median (5th to 95th percentile); noisy: spread over 20% of the median. step: write inputs, record, submit,"
    " wait, read outputs. kernel: GPU timestamps around each dispatch, taken in the step after it, as they"
    " cost time themselves. overhead: step minus kernels. On the device: how much longer a submission takes"
    " for a step more in it, without timestamps; outside: step minus that."
)


def device_line(device: Device) -> str:
    """What all figures of a profile depend on."""
    info, layers = device.info, ", ".join(active_layers()) or "none active"
    return f"device: {info.name} ({info.kind}), driver: {info.driver}, layers: {layers}"


def heading(measurement: Measurement, devices: Sequence[Device]) -> list[str]:
    moved = measurement.bytes_per_step
    return [
        device_line(devices[0]),
        f"step: {measurement.graph}, batch {measurement.batch}; {measurement.warmup} warm-up steps,"
        f" {measurement.runs} measured, in blocks that take turns",
        f"bytes moved: at most {moved:,} a step, {moved // measurement.batch:,} a token; of experts only the chosen",
    ]


def tables(measurement: Measurement) -> list[Table]:
    floors = titled("backend", "empty submit", "empty dispatch", "barrier", title="floors, us")
    for floor in measurement.floors:
        floors.add_row(
            floor.backend, cell(floor.empty_submit_us), cell(floor.empty_dispatch_us), cell(floor.barrier_us)
        )
    steps = titled(
        "schedule",
        "backend",
        "dispatches",
        "submits",
        "step",
        "kernel",
        "overhead",
        "%",
        title="step, us",
    )
    host = titled("schedule", "backend", "record", "submit", "wait", title="host time of a step, us")
    for times in measurement.schedules:
        steps.add_row(
            times.name,
            times.backend,
            str(times.dispatches_per_step),
            f"{times.submits_per_step:.3g}",
            cell(times.step_us),
            cell(times.kernel_us),
            cell(times.overhead_us),
            "-" if times.overhead_percent is None else f"{times.overhead_percent:.1f}",
        )
        submit = cell(times.submit_us) if times.submit_us else f"{times.submit_and_wait_us} with wait"
        host.add_row(times.name, times.backend, cell(times.record_us), submit, cell(times.wait_us))
    kernels = titled("kernel", "schedule", "calls", "bytes", "time", "% of kernels", title="kernels, us a step")
    for kernel in measurement.kernels:
        counts = str(kernel.calls_per_step), f"{kernel.bytes_per_step:,}"
        kernels.add_row(kernel.name, kernel.schedule, *counts, str(kernel.time_us), f"{kernel.share_percent:.1f}")
    outside = [slope.table(measurement.outside)] if measurement.outside else []
    return [
        floors,
        steps,
        *outside,
        host,
        kernels,
        *roofline.tables(measurement.ceilings, [*measurement.roofline, *measurement.step_roofline]),
    ]


def as_json(measurement: Measurement, devices: Sequence[Device]) -> dict[str, Any]:
    """The device, and the measurement's fields by their names."""
    device = msgspec.to_builtins(devices[0].info) | {"layers": active_layers()}
    measured: dict[str, Any] = msgspec.to_builtins(measurement)
    return {"device": device} | measured
