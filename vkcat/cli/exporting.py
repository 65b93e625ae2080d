"""`vkcat export`."""

from __future__ import annotations

from pathlib import Path

import click

from vkcat.cli import options
from vkcat.export import export as write
from vkcat.stored import read_model


@click.command()
@options.model
@click.argument("out", type=click.Path(path_type=Path, dir_okay=False))
def export(model: Path, out: Path) -> None:
    """Write a model's weights as a safetensors file that torch modules load without renaming.

    A stack of GRU blocks alone becomes embedding (nn.Embedding), gru (nn.GRU) and output (nn.Linear); any other model
    keeps the names of its folder, which are those of nn.GRUCell, nn.Linear and nn.RMSNorm in a tree of modules.
    """
    tensors = write(read_model(model), out)
    modules = ", ".join(dict.fromkeys(name.split(".")[0] for name in tensors))
    click.echo(f"{out}: {len(tensors)} tensors of {modules}")
