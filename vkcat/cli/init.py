"""`vkcat init`."""

from __future__ import annotations

from pathlib import Path

import click

from vkcat import presets
from vkcat.weights import save_model


@click.command()
@click.argument("name")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the weights.")
def init(name: str, out: Path, seed: int) -> None:
    """Write a model with weights drawn from a seed.

    NAME is a shipped configuration (gru-l3, gru-l3-combined, gru-l3-delta, gru-l3-depth, gru-l3-experts, k3-tiny), or a
    .json file of your own. It says nothing sensible, but costs what a trained one would.
    """
    model = presets.initial_model(presets.preset(name), seed)
    save_model(out, model.config, model.weights)
    values = sum(array.size for array in model.weights.values())
    click.echo(f"{out}: {model.config.name}, {len(model.weights)} tensors, {values:,} parameters, seed {seed}")
