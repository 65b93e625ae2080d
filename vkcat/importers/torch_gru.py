"""A state dict of torch.nn.GRU in safetensors, with an nn.Embedding before and an nn.Linear after it if named.

Parameters are those of torch: `PREFIXweight_ih_lK`, `weight_hh_lK`, `bias_ih_lK`, `bias_hh_lK`, with the suffix
`_reverse` for the second direction.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from vkcat.errors import ModelError, mismatch
from vkcat.importers.gru_model import GruModel, Imported, Layer, Linear
from vkcat.importers.symbols import read_symbols
from vkcat.importers.tensors import Array, TensorFile
from vkcat.sequences.conventions import Cell

_FIRST = re.compile(r"(?P<prefix>.*?)weight_ih_l(?P<layer>\d+)(?P<reverse>_reverse)?")


def read_state_dict(
    path: Path,
    *,
    prefix: str | None = None,
    embedding: str | None = None,
    output: str | None = None,
    symbols: str | None = None,
) -> Imported:
    """The model in a safetensors file; `embedding` and `output` name modules, `symbols` is as for `read_symbols`.

    Raises `ModelError` naming the tensor, the shape expected and the one found.
    """
    with TensorFile(path) as file:
        layers = _layers(file, _prefix(file, prefix))
        table = None
        if embedding is not None:
            rows, _ = file.shape(f"{embedding}.weight", "V, I")
            table = file.take(f"{embedding}.weight", rows, layers[0].inputs)
        head = None if output is None else _linear(file, output, layers[-1].width)
        file.done("see --embedding, --output and --prefix")
        listed = None
        if symbols is not None:
            if table is None:
                raise ModelError(mismatch("--symbols", "an --embedding", "none"))
            listed = read_symbols(symbols, len(table), file.where(f"{embedding}.weight"))
    model = GruModel(layers=layers, table=table, projection=None, output=head)
    notes = tuple(f"{count} of {dtype} made float32" for dtype, count in file.converted.items())
    return Imported(model.stored(path.stem, str(path), listed), notes)


def _prefix(file: TensorFile, wanted: str | None) -> str:
    matches = [match for name in file.names if (match := _FIRST.fullmatch(name))]
    found = sorted({match["prefix"] for match in matches})
    if wanted is not None:
        # A module's name stands for its parameters'.
        chosen = wanted if wanted in found or not wanted or wanted.endswith(".") else f"{wanted}."
        if chosen not in found:
            raise ModelError(mismatch(f"{file.path}: --prefix", f"one of {_quoted(found)}", repr(wanted)))
        return chosen
    if not found:
        names = ", ".join(file.names[:4]) or "no tensors"
        raise ModelError(mismatch(str(file.path), "a torch.nn.GRU's weight_ih_l0 and so on", names))
    if len(found) > 1:
        raise ModelError(mismatch(str(file.path), "one GRU", f"the prefixes {_quoted(found)}", "choose with --prefix"))
    return found[0]


def _quoted(names: list[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _layers(file: TensorFile, prefix: str) -> tuple[Layer, ...]:
    matches = [match for name in file.names if (match := _FIRST.fullmatch(name)) and match["prefix"] == prefix]
    suffixes = ("", "_reverse") if any(match["reverse"] for match in matches) else ("",)
    first = f"{prefix}weight_hh_l0"
    rows, hidden = file.shape(first, "3H, H")
    if rows != 3 * hidden:
        raise ModelError(
            mismatch(file.where(first), f"{(3 * hidden, hidden)}, the three gates of a GRU", (rows, hidden))
        )
    biases = f"{prefix}bias_ih_l0" in file
    _, inputs = file.shape(f"{prefix}weight_ih_l0", "3H, I")
    layers = []
    for number in range(1 + max(int(match["layer"]) for match in matches)):
        ends = [f"_l{number}{suffix}" for suffix in suffixes]
        cells = tuple(_cell(file, prefix, end, inputs, hidden, biases) for end in ends)
        layers.append(Layer("both" if len(cells) == 2 else "forward", "after", cells))
        inputs = layers[-1].width
    return tuple(layers)


def _cell(file: TensorFile, prefix: str, end: str, inputs: int, hidden: int, biases: bool) -> Cell:
    rows = 3 * hidden

    def bias(name: str) -> Array:
        return file.take(f"{prefix}{name}{end}", rows) if biases else np.zeros(rows, np.float32)

    return Cell(
        w_ih=file.take(f"{prefix}weight_ih{end}", rows, inputs),
        w_hh=file.take(f"{prefix}weight_hh{end}", rows, hidden),
        b_ih=bias("bias_ih"),
        b_hh=bias("bias_hh"),
    )


def _linear(file: TensorFile, name: str, inputs: int) -> Linear:
    rows, _ = file.shape(f"{name}.weight", "N, K")
    weight = file.take(f"{name}.weight", rows, inputs)
    bias = file.take(f"{name}.bias", rows) if f"{name}.bias" in file else np.zeros(rows, np.float32)
    return Linear(weight, bias)
