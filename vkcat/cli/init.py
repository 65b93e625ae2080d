"""`vkcat init`."""

from __future__ import annotations

from pathlib import Path

import click
from msgspec.structs import replace

from vkcat import presets
from vkcat.kernel import PRECISIONS
from vkcat.weights import save_model


@click.command()
@click.argument("name")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the weights.")
@click.option("--dtype", type=click.Choice(PRECISIONS), help="Of its matrices, in place of the configuration's.")
def init(name: str, out: Path, seed: int, dtype: str | None) -> None:
    """Write a model with weights drawn from a seed.

    NAME is a shipped configuration (gru-l3, gru-l3-combined, gru-l3-delta, gru-l3-depth, gru-l3-experts, k3-tiny), or a
    .json file of your own. It says nothing sensible, but costs what a trained one would.
    """
    config = presets.preset(name)
    model = presets.initial_model(replace(config, dtype=dtype or config.dtype), seed)
    save_model(out, model.config, model.weights)
    click.echo(f"{out}: {model.described}, {model.config.dtype}, seed {seed}")
