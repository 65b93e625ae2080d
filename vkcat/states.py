"""Saved states: what a session's streams go on from, as a safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from vkcat.arrays import check_ids
from vkcat.errors import InputError, mismatch
from vkcat.files import replaced
from vkcat.graph import Tensor
from vkcat.safetensors_file import SafetensorsFile

Array = NDArray[Any]
FORMAT = "vkcat-state/1"
OUTPUTS, FRESH = "session.outputs", "session.fresh"


class SavedState(Struct, frozen=True):
    """States and memories by name, the outputs (B, V), and which streams have not begun (B)."""

    kept: dict[str, Array]
    outputs: Array
    fresh: NDArray[np.bool_]


def save(path: Path, model: str, kept: Mapping[str, Array], outputs: Array, fresh: NDArray[np.bool_]) -> None:
    """Write a state of the model of this identity. What a stream that has not begun holds is no one's: zeros stand
    for it."""
    arrays = {}
    for name, array in {**kept, OUTPUTS: outputs}.items():
        arrays[name] = np.ascontiguousarray(array)
        if fresh.any():
            arrays[name] = arrays[name].copy()
            arrays[name][fresh] = 0
    arrays[FRESH] = fresh.astype(np.uint8)
    with replaced(path) as temporary:
        try:
            save_file(arrays, temporary, metadata={"format": FORMAT, "model": model})
        except SafetensorError as error:
            raise InputError(mismatch(str(path), "a file that can be written", str(error))) from error


def read(
    path: Path,
    model: str,
    kept: Mapping[str, Tensor],
    outputs: tuple[int, ...],
    dtype: type[np.floating[Any]],
    limits: Mapping[Tensor, int],
) -> SavedState:
    """Read a state of a session of the model of this identity that keeps these tensors, its numbers as `dtype`.

    `limits` are exclusive, of what a shader reads a table by. Raises `InputError` naming what does not fit.
    """
    try:
        with SafetensorsFile(path) as file:
            _check_metadata(path, file.metadata, model)
            _check_tensors(path, file, kept, outputs)
            arrays = {name: file.array(name) for name in (*kept, OUTPUTS, FRESH)}
    except FileNotFoundError as error:
        raise InputError(mismatch(str(path), "a saved state", "no such file")) from error
    except OSError as error:
        raise InputError(mismatch(str(path), "a whole safetensors file", error.strerror)) from error
    except ValueError as error:
        raise InputError(mismatch(str(path), "a whole safetensors file", error)) from error
    for name, tensor in kept.items():
        if tensor in limits:
            check_ids(f"{path}: {name}", arrays[name], limits[tensor])
    # The reference saves float64; a device goes on in its own precision, and the other way round.
    dtypes = {name: dtype if tensor.dtype == "float32" else tensor.dtype for name, tensor in kept.items()}
    # What float32 cannot hold becomes infinite, as it would in a step; a signalling NaN is invalid.
    with np.errstate(over="ignore", invalid="ignore"):
        loaded = {name: arrays[name].astype(into, copy=False) for name, into in {**dtypes, OUTPUTS: dtype}.items()}
    return SavedState(loaded, loaded.pop(OUTPUTS), arrays[FRESH] != 0)


def _check_metadata(path: Path, found: Mapping[str, str], model: str) -> None:
    if found.get("format") != FORMAT:
        raise InputError(mismatch(str(path), f"a saved state ({FORMAT})", found.get("format", "another file")))
    if found.get("model") != model:
        raise InputError(mismatch(f"{path}: model", model, found.get("model", "none"), "another model's state?"))


def _check_tensors(path: Path, file: SafetensorsFile, kept: Mapping[str, Tensor], outputs: tuple[int, ...]) -> None:
    floats = ("F32", "F64")
    expected = {
        name: (tensor.shape, floats if tensor.dtype == "float32" else ("U32",)) for name, tensor in kept.items()
    }
    expected |= {OUTPUTS: (outputs, floats), FRESH: (outputs[:1], ("U8",))}
    if file.entries.keys() != expected.keys():
        raise InputError(mismatch(str(path), f"the state of {sorted(expected)}", sorted(file.entries)))
    for name, (shape, dtypes) in expected.items():
        entry = file.entries[name]
        if entry.shape != shape:
            raise InputError(mismatch(f"{path}: {name}", shape, entry.shape, "see the batch it was saved with"))
        if entry.dtype not in dtypes:
            raise InputError(mismatch(f"{path}: {name}", f"dtype {' or '.join(dtypes)}", entry.dtype))
