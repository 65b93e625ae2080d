"""`vkcat profile --fit`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from vkcat.cli.console import console
from vkcat.cli.files import write_json
from vkcat.cli.progress import progress
from vkcat.config import ModelConfig
from vkcat.device.interface import Device
from vkcat.profile import costmodel, report
from vkcat.profile.points import measure_points


def fit_costs(
    device: Device, config: ModelConfig, graph: str, batch: int, warmup: int, runs: int, json_path: Path | None
) -> None:
    """Measure, fit, and print what a submission's parts cost."""
    with progress("rounds", warmup + runs) as advance:
        points, step = measure_points(
            device, config, graph=graph, batch=batch, warmup=warmup, runs=runs, advance=advance
        )
    found = costmodel.fit(points, step)
    out = console()
    out.print(report.device_line(device))
    out.print(f"step: {graph}, batch {batch}; {warmup} warm-up rounds, {runs} measured, of {len(points)} points")
    for table in costmodel.tables(found):
        out.print(table)
    out.print(costmodel.NOTE)
    out.print(costmodel.verdict(found))
    if json_path:
        about = {
            "device": msgspec.to_builtins(device.info),
            "model": config.name,
            "graph": graph,
            "batch": batch,
            "runs": runs,
        }
        write_json(json_path, about | costmodel.as_json(found))
