"""Saved states: what a session's streams go on from, as a safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from vkcat.errors import InputError, mismatch
from vkcat.files import replaced
from vkcat.graph import Tensor

Array = NDArray[Any]
FORMAT = "vkcat-state/1"
OUTPUTS, FRESH = "session.outputs", "session.fresh"


@dataclass(frozen=True)
class SavedState:
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
    path: Path, model: str, kept: Mapping[str, Tensor], outputs: tuple[int, ...], dtype: type[np.floating[Any]]
) -> SavedState:
    """Read a state of a session of the model of this identity that keeps these tensors, its numbers as `dtype`.

    Raises `InputError` naming what does not fit.
    """
    if not path.is_file():
        raise InputError(mismatch(str(path), "a saved state", "no such file"))
    try:
        with safe_open(path, framework="numpy") as file:
            _check_metadata(path, file.metadata() or {}, model)
            _check_tensors(path, file, kept, outputs)
            arrays = {name: file.get_tensor(name) for name in (*kept, OUTPUTS, FRESH)}
    except (SafetensorError, OSError) as error:
        raise InputError(mismatch(str(path), "a whole safetensors file", f"{type(error).__name__}: {error}")) from error
    # The reference saves float64; a device goes on in its own precision, and the other way round.
    loaded = {
        name: arrays[name].astype(dtype if tensor.dtype == "float32" else tensor.dtype, copy=False)
        for name, tensor in kept.items()
    }
    return SavedState(loaded, arrays[OUTPUTS].astype(dtype, copy=False), arrays[FRESH] != 0)


def _check_metadata(path: Path, found: Mapping[str, str], model: str) -> None:
    if found.get("format") != FORMAT:
        raise InputError(mismatch(str(path), f"a saved state ({FORMAT})", found.get("format", "another file")))
    if found.get("model") != model:
        raise InputError(mismatch(f"{path}: model", model, found.get("model", "none"), "another model's state?"))


def _check_tensors(path: Path, file: Any, kept: Mapping[str, Tensor], outputs: tuple[int, ...]) -> None:
    floats = ("F32", "F64")
    expected = {
        name: (tensor.shape, floats if tensor.dtype == "float32" else ("U32",)) for name, tensor in kept.items()
    }
    expected |= {OUTPUTS: (outputs, floats), FRESH: (outputs[:1], ("U8",))}
    if set(file.keys()) != expected.keys():
        raise InputError(mismatch(str(path), f"the state of {sorted(expected)}", sorted(file.keys())))
    for name, (shape, dtypes) in expected.items():
        part = file.get_slice(name)
        if tuple(part.get_shape()) != shape:
            remedy = "see the batch it was saved with"
            raise InputError(mismatch(f"{path}: {name}", shape, tuple(part.get_shape()), remedy))
        if part.get_dtype() not in dtypes:
            raise InputError(mismatch(f"{path}: {name}", f"dtype {' or '.join(dtypes)}", part.get_dtype()))
