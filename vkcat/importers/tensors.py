"""Tensors of other people's safetensors files, as float32."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from vkcat.errors import ModelError, mismatch

Array = NDArray[np.float32]

DTYPES = ("F32", "F16", "BF16", "F64")


class TensorFile:
    """A safetensors file whose tensors are taken one by one; what is left over is an error.

    `converted` lists the dtypes other than float32 that were taken, with how many tensors of each. Raises `ModelError`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.converted: dict[str, int] = {}
        try:
            with safe_open(path, framework="numpy") as file:
                parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
                self._left = {name: (tuple(part.get_shape()), part.get_dtype()) for name, part in parts.items()}
        except FileNotFoundError as error:
            raise ModelError(mismatch(str(path), "a safetensors file", "no such file")) from error
        except (SafetensorError, OSError) as error:
            remedy = "torch's own files are saved anew by safetensors.torch.save_file"
            raise ModelError(mismatch(str(path), "a whole safetensors file", error, remedy)) from error

    @property
    def names(self) -> list[str]:
        """Of what is left."""
        return sorted(self._left)

    def __contains__(self, name: str) -> bool:
        return name in self._left

    def where(self, name: str) -> str:
        return f"{self.path}: {name}"

    def shape(self, name: str, letters: str) -> tuple[int, ...]:
        """Of a tensor with as many dimensions as `letters`, "3H, H" say, has; none of them is 0."""
        if name not in self._left:
            raise ModelError(mismatch(self.where(name), f"a tensor ({letters})", "none"))
        shape = self._left[name][0]
        if len(shape) != letters.count(",") + 1 or 0 in shape:
            raise ModelError(mismatch(self.where(name), f"({letters})", shape))
        return shape

    def take(self, name: str, *shape: int) -> Array:
        """The tensor of that shape, finite and in float32."""
        if name not in self._left:
            raise ModelError(mismatch(self.where(name), f"a tensor {shape}", "none"))
        got, dtype = self._left.pop(name)
        if got != shape:
            raise ModelError(mismatch(self.where(name), shape, got))
        if dtype not in DTYPES:
            raise ModelError(mismatch(self.where(name), f"dtype {', '.join(DTYPES)}", dtype))
        if dtype != "F32":
            self.converted[dtype] = self.converted.get(dtype, 0) + 1
        return finite(self._read(name, shape, dtype), self.where(name))

    def done(self, remedy: str) -> None:
        if self._left:
            raise ModelError(mismatch(str(self.path), "no other tensors", ", ".join(self.names), remedy))

    def _read(self, name: str, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
        if dtype == "BF16":
            return _bfloat16(self.path, name).reshape(shape)
        with safe_open(self.path, framework="numpy") as file:
            array: NDArray[Any] = file.get_tensor(name)
        return array


def finite(array: NDArray[Any], where: str) -> Array:
    """In float32, where every value must be finite. Raises `ModelError`."""
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(array, np.float32)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        at = [int(i) for i in np.unravel_index(bad[0], array.shape)]
        raise ModelError(mismatch(where, "finite float32 values", f"{array.flat[bad[0]]} at {at}"))
    return values


def _bfloat16(path: Path, name: str) -> Array:
    """NumPy has no bfloat16: its 16 bits are the upper ones of a float32. `safe_open` has checked the header."""
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    begin, end = json.loads(data[8:start])[name]["data_offsets"]
    halves = np.frombuffer(data[start + begin : start + end], "<u2")
    return (halves.astype(np.uint32) << 16).view(np.float32)
