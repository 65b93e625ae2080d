"""`vkcat profile --sweep`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from vkcat.cli.console import console
from vkcat.cli.files import write_json
from vkcat.cli.progress import progress
from vkcat.config import ModelConfig
from vkcat.device.interface import Device
from vkcat.profile import report, sweep


def sweep_sizes(
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
    json_path: Path | None,
) -> None:
    """Time each size, and print how what is in a step grows."""
    with progress("rounds", warmup + runs) as advance:
        found = sweep.sweep(
            device,
            config,
            schedules,
            axis,
            values,
            graph=graph,
            batch=batch,
            warmup=warmup,
            runs=runs,
            advance=advance,
        )
    out = console()
    out.print(report.device_line(device))
    out.print(f"step: {graph}; {warmup} warm-up steps, {runs} measured, in blocks that take turns; random weights")
    for table in sweep.tables(found):
        out.print(table)
    for name in found.left_out:
        out.print(f"{name}: not at every size, so that it has no exponent")
    if json_path:
        about = {"device": msgspec.to_builtins(device.info), "model": config.name, "batch": batch}
        write_json(json_path, about | sweep.as_json(found))
