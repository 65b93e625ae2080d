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
    """Write a state. What a stream that has not begun holds is no one's: zeros stand for it."""
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


def read(path: Path, kept: Mapping[str, Tensor], outputs: tuple[int, ...], dtype: type[np.floating[Any]]) -> SavedState:
    """Read a state of a session that keeps these tensors, its numbers as `dtype`.

    Raises `InputError` naming what does not fit.
    """
    if not path.is_file():
        raise InputError(mismatch(str(path), "a saved state", "no such file"))
    try:
        with safe_open(path, framework="numpy") as file:
            found = (file.metadata() or {}).get("format")
            if found != FORMAT:
                raise InputError(mismatch(str(path), f"a saved state ({FORMAT})", found or "another file"))
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (SafetensorError, OSError) as error:
        raise InputError(mismatch(str(path), "a whole safetensors file", f"{type(error).__name__}: {error}")) from error
    shapes = {name: tensor.shape for name, tensor in kept.items()}
    shapes |= {OUTPUTS: outputs, FRESH: outputs[:1]}
    if arrays.keys() != shapes.keys():
        raise InputError(mismatch(str(path), f"the state of {sorted(shapes)}", sorted(arrays), "another model?"))
    for name, shape in shapes.items():
        if arrays[name].shape != shape:
            raise InputError(mismatch(f"{path}: {name}", shape, arrays[name].shape, "see the batch it was saved with"))
    # The reference saves float64; a device goes on in its own precision, and the other way round.
    loaded = {
        name: arrays[name].astype(dtype if tensor.dtype == "float32" else tensor.dtype, copy=False)
        for name, tensor in kept.items()
    }
    return SavedState(loaded, arrays[OUTPUTS].astype(dtype, copy=False), arrays[FRESH].astype(bool))
