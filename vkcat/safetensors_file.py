"""A safetensors file: its header checked as a whole, its tensors read one by one.

The format: 8 bytes, little-endian, how long the header is; the header, JSON; then the tensors, one after the other. It
is read by vkcat itself: the package maps the file into memory, and one that is cut short meanwhile ends the process.
"""

from __future__ import annotations

import os
from math import prod
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vkcat.files import open_regular
from vkcat.strict_json import decoded

MOST_HEADER_BYTES = 100_000_000
"""The package's own limit."""

MOST_DIMENSIONS = 32
"""NumPy's."""

_BITS = {
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "BOOL": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "BF16": 16,
    "C64": 64,
}
_BITS |= {f"{kind}{bits}": bits for kind in "UIF" for bits in (8, 16, 32, 64) if (kind, bits) != ("F", 8)}

_NUMPY = {"BF16": "<u2", "U8": "u1", "U32": "<u4", "F16": "<f2", "F32": "<f4", "F64": "<f8"}
"""Of those that are read. NumPy has no bfloat16: the words stand for it."""


class Entry(Struct, frozen=True):
    """What the header says of a tensor; `begin` counts bytes of the file."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    nbytes: int


class SafetensorsFile:
    """An open file: `entries` by name, `metadata`. Raises `OSError`, and `ValueError` for a file that is not whole."""

    def __init__(self, path: Path) -> None:
        self._file = open_regular(path)
        try:
            self.entries, self.metadata = _header(self._file.read(8), self._file)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> SafetensorsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def array(self, name: str) -> NDArray[Any]:
        """A tensor of a dtype that NumPy has, bfloat16 as its words."""
        entry = self.entries[name]
        values = np.empty(entry.shape, _NUMPY[entry.dtype])
        self._file.seek(entry.begin)
        if entry.nbytes and self._file.readinto(values.reshape(-1).view(np.uint8).data) != entry.nbytes:  # type: ignore[attr-defined]
            raise ValueError(f"a file that was cut short while {name} was read")
        return values


def _header(length: bytes, file: Any) -> tuple[dict[str, Entry], dict[str, str]]:
    size = os.fstat(file.fileno()).st_size
    count = int.from_bytes(length, "little")
    if len(length) < 8 or count > min(size - 8, MOST_HEADER_BYTES):
        raise ValueError(f"a header of {count} bytes in a file of {size}")
    value = decoded(file.read(count))
    if not isinstance(value, dict):
        raise ValueError("a header that is no object")
    metadata = value.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise ValueError("metadata that are no texts")
    entries = {name: _entry(name, given, 8 + count) for name, given in value.items()}
    at = 8 + count
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].nbytes)):
        # So no two share bytes, and the tensors together are no larger than the file.
        if entry.begin != at:
            raise ValueError(f"{name[:60]} at byte {entry.begin} in place of {at}")
        at += entry.nbytes
    if at != size:
        raise ValueError(f"{size} bytes in place of the {at} of its header")
    return entries, metadata


def _entry(name: str, given: object, start: int) -> Entry:
    if not isinstance(given, dict) or given.keys() != {"dtype", "shape", "data_offsets"}:
        raise ValueError(f"a header without dtype, shape and offsets of {name[:60]}")
    shape, (begin, end), dtype = _sizes(given["shape"]), _sizes(given["data_offsets"], 2), given["dtype"]
    if not isinstance(dtype, str) or dtype not in _BITS:
        raise ValueError(f"a dtype of {name[:60]} that is not known")
    bits = prod(shape) * _BITS[dtype]
    if bits % 8 or end - begin != bits // 8:
        raise ValueError(f"{shape} of {dtype} in {end - begin} bytes of {name[:60]}")
    return Entry(dtype, shape, start + begin, bits // 8)


def _sizes(value: object, count: int | None = None) -> tuple[int, ...]:
    if not isinstance(value, list) or len(value) > MOST_DIMENSIONS or count not in (None, len(value)):
        raise ValueError("a shape or offsets that are no list of sizes")
    if not all(type(number) is int and 0 <= number < 1 << 63 for number in value):
        raise ValueError("a shape or offsets that are no sizes")
    return tuple(value)
