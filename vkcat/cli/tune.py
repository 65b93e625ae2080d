"""`vkcat tune`."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click
from rich import box
from rich.table import Table

from vkcat import tilings
from vkcat.cli import options
from vkcat.cli.console import console
from vkcat.cli.progress import progress
from vkcat.device.backends import open_device
from vkcat.errors import InputError, mismatch
from vkcat.model import build, fused_for
from vkcat.stored import read_model
from vkcat.tune import Found, graphs_run, tunable
from vkcat.tune import tune as tune_node


@click.command()
@options.model
@options.device
@click.option("--batch", type=click.IntRange(1, 4096), default=1, show_default=True, help="Streams side by side.")
@click.option("--again", is_flag=True, help="Also measure what was measured before.")
@options.fuse
def tune(model: Path, device: str | None, batch: int, again: bool, fuse: bool) -> None:
    """Measure how this device is best given a model's products, and keep that for all later runs.

    What was found is kept as it is found: an interrupted search goes on where it was. The table is
    tilings.json in the user's cache folder, or the file that VKCAT_TILINGS names.
    """
    path = tilings.file()
    if path is None:
        raise InputError(mismatch("tune", "a file for the table", "none", f"set {tilings.VARIABLE} to one"))
    stored = read_model(model)
    built = build(stored.config, batch)
    with closing(open_device("vulkan", device)) as opened:
        graphs = graphs_run(built)
        nodes = tunable(fused_for(opened.info, graphs) if fuse else graphs)
        key = tilings.device_key(opened.info)
        known = {} if again else tilings.read(path).get(key, {})
        wanted = [node for node in nodes if tilings.node_key(node) not in known]
        found = []
        with progress("products", len(wanted)) as advance:
            for node in wanted:
                found.append(tune_node(opened, node))
                tilings.keep(path, key, {found[-1].node: found[-1].best})
                advance(1)
    out = console()
    out.print(f"{key}: {len(found)} measured, {len(nodes) - len(wanted)} known before")
    if found:
        out.print(_table(found))


def _table(found: list[Found]) -> Table:
    table = Table(
        "shader and sizes", "streams, rows, split, lanes", "us", "of the default", "tried", box=box.SIMPLE_HEAD
    )
    for one in found:
        best = one.best
        numbers = f"{best.streams}, {best.rows}, {best.split}, {best.lanes}"
        table.add_row(one.node, numbers, f"{one.us:.1f}", f"{one.ratio:.2f}", str(one.tried))
    return table
