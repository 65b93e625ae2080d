"""`vkcat import`."""

from __future__ import annotations

from pathlib import Path

import click

from vkcat.importers import g2p_en as g2p
from vkcat.importers import torch_gru as torch
from vkcat.importers.gru_model import Imported
from vkcat.importers.onnx_gru import read_onnx
from vkcat.stored import StoredModel
from vkcat.weights import save_model

FILE = click.Path(path_type=Path, dir_okay=False)
symbols = click.option(
    "--symbols", metavar="bytes|FILE", help="The embedding's: bytes, or a UTF-8 file of one a line.  [default: ids]"
)


@click.group("import")
def import_() -> None:
    """Turn other people's weights into a model folder."""


@import_.command("g2p-en")
@click.argument("out", type=click.Path(path_type=Path))
def g2p_en(out: Path) -> None:
    """English spelling to phonemes, from the installed package g2p_en (its code is not run)."""
    _save(out, Imported(StoredModel(*g2p.read_checkpoint(g2p.find_checkpoint())), ()))


@import_.command("torch-gru")
@click.argument("file", type=FILE)
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--prefix", help="What stands before weight_ih_l0, when there are several GRUs.")
@click.option("--embedding", metavar="MODULE", help="The nn.Embedding before it, as emb of emb.weight.")
@click.option("--output", metavar="MODULE", help="The nn.Linear after it, as head of head.weight and head.bias.")
@symbols
def torch_gru(
    file: Path, out: Path, prefix: str | None, embedding: str | None, output: str | None, symbols: str | None
) -> None:
    """A state dict of torch.nn.GRU in a safetensors file: stacked, bidirectional, with or without biases.

    Without an embedding the model reads features, without an output layer it gives the last layer's states. An output
    as wide as the embedding has symbols gives tokens. float16, bfloat16 and float64 become float32.
    """
    imported = torch.read_state_dict(file, prefix=prefix, embedding=embedding, output=output, symbols=symbols)
    _save(out, imported)


@import_.command("onnx")
@click.argument("file", type=FILE)
@click.argument("out", type=click.Path(path_type=Path))
@symbols
def onnx(file: Path, out: Path, symbols: str | None) -> None:
    """An ONNX graph of GRU layers, perhaps with an embedding (Gather) and linear layers (MatMul, Gemm) at its ends.

    What stands between may only rearrange; a node that does anything else is an error that names it. Needs the extra
    onnx.
    """
    _save(out, read_onnx(file, symbols=symbols))


def _save(out: Path, imported: Imported) -> None:
    """Write the folder and say what it holds, and what was not as it is there."""
    model = imported.model
    save_model(out, model.config, model.weights)
    click.echo("; ".join((f"{out}: {model.described}", *imported.notes)))
