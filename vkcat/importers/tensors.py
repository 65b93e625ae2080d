"""Tensors of other people's safetensors files, as float32."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.errors import ModelError, mismatch
from vkcat.safetensors_file import SafetensorsFile

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
            self._file = SafetensorsFile(path)
        except FileNotFoundError as error:
            raise ModelError(mismatch(str(path), "a safetensors file", "no such file")) from error
        except (ValueError, OSError) as error:
            raise self._broken(error) from error
        self._left = {name: (entry.shape, entry.dtype) for name, entry in self._file.entries.items()}

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.__exit__(kind, error, trace)

    def _broken(self, error: ValueError | OSError) -> ModelError:
        remedy = "torch's own files are saved anew by safetensors.torch.save_file"
        got = error.strerror if isinstance(error, OSError) else error
        return ModelError(mismatch(str(self.path), "a whole safetensors file", got, remedy))

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
        try:
            array = self._file.array(name)
        except (ValueError, OSError) as error:
            raise self._broken(error) from error
        if dtype == "BF16":
            # The upper half of a float32's bits.
            array = (array.astype(np.uint32) << 16).view(np.float32)
        return finite(array, self.where(name))

    def done(self, remedy: str) -> None:
        if self._left:
            raise ModelError(mismatch(str(self.path), "no other tensors", ", ".join(self.names), remedy))


def finite(array: NDArray[Any], where: str) -> Array:
    """In float32, where every value must be finite. Raises `ModelError`."""
    # What overflows is found below; a signalling NaN is invalid.
    with np.errstate(over="ignore", invalid="ignore"):
        values = np.ascontiguousarray(array, np.float32)
    bad = np.flatnonzero(~np.isfinite(values))
    if bad.size:
        at = [int(i) for i in np.unravel_index(bad[0], array.shape)]
        raise ModelError(mismatch(where, "finite float32 values", f"{array.flat[bad[0]]} at {at}"))
    return values
