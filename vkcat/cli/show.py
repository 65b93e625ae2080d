"""`vkcat show`."""

from __future__ import annotations

import json
from pathlib import Path

import click
import msgspec
from rich import box
from rich.table import Table

from vkcat import summary
from vkcat.cli import options
from vkcat.cli.console import console
from vkcat.model import Model, build
from vkcat.stored import read_model


@click.command()
@options.model
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def show(model: Path, as_json: bool) -> None:
    """Show a model: its blocks, what a token costs, and every weight and state with its shape.

    Bytes moved and active parameters are counted from the graph, for one stream: what the kernels read and write at
    most. Of experts only the chosen ones count.
    """
    config = read_model(model).config
    built = build(config)
    if as_json:
        click.echo(json.dumps(_as_json(config.name, config.dtype, built), indent=1))
        return
    out = console()
    total = summary.parameters(built)
    out.print(f"{config.name}: {total:,} parameters, {config.dtype}; state of a stream: {_bytes(built)}")
    for cost in summary.costs(built):
        out.print(_table(cost))
    out.print(_shapes(built))


def _bytes(built: Model) -> str:
    return f"{summary.state_bytes(built):,} bytes"


def _table(cost: summary.Cost) -> Table:
    title = (
        f"step {cost.graph}: {cost.ops} ops in {cost.dispatches} dispatches, {cost.active:,} active parameters,"
        f" {cost.bytes_moved:,} bytes moved"
    )
    table = Table(
        "part",
        "ops",
        "parameters",
        "state bytes",
        "bytes moved",
        title=title,
        title_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for part in cost.parts:
        counts = [f"{count:,}" if count else "-" for count in (part.parameters, part.state_bytes, part.bytes_moved)]
        table.add_row(part.name, ", ".join(part.ops), *counts)
    return table


def _shapes(built: Model) -> Table:
    table = Table("tensor", "kind", "shape", "dtype", title="tensors", title_justify="left", box=box.SIMPLE_HEAD)
    for tensor in built.weights.values():
        table.add_row(tensor.name, tensor.role.value, ", ".join(map(str, tensor.shape)), tensor.dtype)
    for tensor in built.shared.kept.values():
        # Of one stream.
        shape = ", ".join(map(str, tensor.shape[1:])) or "one"
        table.add_row(tensor.name, tensor.role.value, shape, tensor.dtype)
    return table


def _as_json(name: str, dtype: str, built: Model) -> dict[str, object]:
    return {
        "name": name,
        "dtype": dtype,
        "parameters": summary.parameters(built),
        "state_bytes": summary.state_bytes(built),
        "steps": [msgspec.to_builtins(cost) for cost in summary.costs(built)],
        "weights": {tensor.name: tensor.shape for tensor in built.weights.values()},
        "states": {tensor.name: tensor.shape[1:] for tensor in built.shared.kept.values()},
    }
