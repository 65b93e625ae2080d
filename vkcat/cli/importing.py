"""`vkcat import`."""

from __future__ import annotations

from pathlib import Path

import click

from vkcat.importers import g2p_en as g2p
from vkcat.weights import save_model


@click.group("import")
def import_() -> None:
    """Turn other people's weights into a model folder."""


@import_.command("g2p-en")
@click.argument("out", type=click.Path(path_type=Path))
def g2p_en(out: Path) -> None:
    """English spelling to phonemes, from the installed package g2p_en (its code is not run)."""
    config, weights = g2p.read_checkpoint(g2p.find_checkpoint())
    save_model(out, config, weights)
    values = sum(array.size for array in weights.values())
    click.echo(f"{out}: {config.name}, {len(weights)} tensors, {values:,} parameters")
