"""`model.safetensors`: read against what the model expects, written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from vkcat import config as configuration
from vkcat.config import ModelConfig
from vkcat.errors import ModelError, mismatch
from vkcat.files import inside
from vkcat.graph import Tensor
from vkcat.safetensors_file import SafetensorsFile

FILE = "model.safetensors"

Array = NDArray[Any]


def load_weights(folder: Path, expected: Mapping[str, Tensor]) -> dict[str, Array]:
    """Arrays by name, each of the expected shape and dtype and finite. Raises `ModelError`."""
    path = folder / FILE
    try:
        with SafetensorsFile(inside(folder, FILE)) as file:
            _check_names(path, expected, set(file.entries))
            return {name: _checked(path, tensor, file) for name, tensor in expected.items()}
    except FileNotFoundError as error:
        raise ModelError(mismatch(str(path), "a model's weights", "no such file", "see `vkcat import -h`")) from error
    except OSError as error:
        raise ModelError(mismatch(str(path), "a whole safetensors file", error.strerror)) from error
    except ValueError as error:
        raise ModelError(mismatch(str(path), "a whole safetensors file", error)) from error


def _check_names(path: Path, expected: Mapping[str, Tensor], found: set[str]) -> None:
    missing = sorted(expected.keys() - found)
    unknown = sorted(found - expected.keys())
    if missing or unknown:
        got = [f"no {_listed(missing)}"] if missing else []
        got += [f"unknown {_listed(unknown)}"] if unknown else []
        raise ModelError(
            mismatch(str(path), f"the {len(expected)} tensors that {configuration.FILE} asks for", ", ".join(got))
        )


def _listed(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _checked(path: Path, tensor: Tensor, file: SafetensorsFile) -> Array:
    entry = file.entries[tensor.name]
    shape, dtype = entry.shape, entry.dtype
    if shape != tensor.shape:
        remedy = f"see the sizes in {configuration.FILE}"
        raise ModelError(mismatch(f"{path}: {tensor.name}", tensor.shape, shape, remedy))
    _check_dtype(f"{path}: {tensor.name}", shape, dtype)
    stored = file.array(tensor.name)
    _check_values(path, tensor.name, stored, np.isfinite(stored), "finite values")
    if stored.dtype == tensor.dtype:
        return stored
    with np.errstate(over="ignore"):
        array = np.ascontiguousarray(stored, tensor.dtype)
    _check_values(path, tensor.name, stored, np.isfinite(array), f"what {tensor.dtype} can hold")
    return array


def _check_dtype(subject: str, shape: tuple[int, ...], dtype: str) -> None:
    """Matrices may be kept in either precision; the configuration's dtype says in which they are used."""
    allowed = ("F32", "F16") if len(shape) > 1 else ("F32",)
    if dtype not in allowed:
        raise ModelError(mismatch(subject, f"dtype {' or '.join(allowed)}", dtype))


def _check_values(path: Path, name: str, values: Array, good: NDArray[np.bool_], expected: str) -> None:
    if not good.all():
        bad = np.flatnonzero(~good)
        at = [int(i) for i in np.unravel_index(bad[0], values.shape)]
        raise ModelError(mismatch(f"{path}: {name}", expected, f"{values.flat[bad[0]]} at {at}"))


def save_model(folder: Path, config: ModelConfig, weights: Mapping[str, Array]) -> None:
    """Write a model folder; `folder` appears whole or stays as it was. Raises `ModelError`.

    Only a process that is killed just then may leave it without a configuration, which is no model.
    """
    # Only who writes a model waits for this.
    import tempfile

    for name, array in weights.items():
        dtype = array.dtype.newbyteorder("=").name
        _check_dtype(f"{folder}: {name}", array.shape, {"float32": "F32", "float16": "F16"}.get(dtype, dtype))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        # Weights alone are what a process left that was killed while it replaced a model.
        models = ({configuration.FILE, FILE}, {FILE})
        if not folder.is_dir() or {entry.name for entry in folder.iterdir()} not in models:
            raise ModelError(mismatch(str(folder), "a new or empty folder, or a model's", "something else"))
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as name:
            temporary = Path(name)
            text = json.dumps(configuration.to_json(config), indent=1, ensure_ascii=False)
            (temporary / configuration.FILE).write_text(text + "\n", encoding="utf-8")
            save_file({key: np.ascontiguousarray(array) for key, array in weights.items()}, temporary / FILE)
            folder.mkdir(exist_ok=True)
            # A folder without a configuration is not a model: never are there one's weights with another's.
            (folder / configuration.FILE).unlink(missing_ok=True)
            for file in (FILE, configuration.FILE):
                os.replace(temporary / file, folder / file)
    except SafetensorError as error:
        # Of a full disk, too.
        raise ModelError(mismatch(str(folder), "a folder that can be written", str(error))) from error
    except OSError as error:
        raise ModelError(mismatch(str(folder), "a folder that can be written", error.strerror)) from error
