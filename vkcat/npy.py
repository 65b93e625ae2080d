"""Arrays of numbers in NumPy's `.npy` format, read without evaluating the Python that its header is."""

from __future__ import annotations

import re
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MAGIC = b"\x93NUMPY"
MOST_HEADER_BYTES = 10_000
"""NumPy's own limit."""

# The three keys may come in any order.
_ITEM = rb"""\s*["'](descr|fortran_order|shape)["']\s*:\s*(["'][^"']*["']|True|False|\([\d,\s]*\))\s*"""
_ITEMS = re.compile(_ITEM)
_HEADER = re.compile(rb"\s*\{%b,%b,%b,?\s*\}\s*" % (_ITEM, _ITEM, _ITEM))
_NUMBERS = re.compile(rb"[<>|=]?([iu][1248]|f[248])")


def parsed(data: bytes) -> NDArray[Any]:
    """An array of integers or floating-point numbers, on the bytes themselves. Raises `ValueError` for any other."""
    if data[:6] != _MAGIC or data[6:7] not in (b"\x01", b"\x02"):
        raise ValueError("no .npy file of version 1 or 2")
    begin = 10 if data[6] == 1 else 12
    end = begin + int.from_bytes(data[8:begin], "little")
    if not begin < end <= min(len(data), begin + MOST_HEADER_BYTES):
        raise ValueError(f"a header of {end - begin} bytes in {len(data)}")
    dtype, order, shape = _fields(data[begin:end])
    if prod(shape) * dtype.itemsize != len(data) - end:
        raise ValueError(f"{len(data) - end} bytes for {dtype} {shape}")
    return np.frombuffer(data, dtype, offset=end).reshape(shape, order=order) if prod(shape) else np.empty(shape, dtype)


def _fields(header: bytes) -> tuple[np.dtype[Any], Any, tuple[int, ...]]:
    found = dict(_ITEMS.findall(header)) if _HEADER.fullmatch(header) else {}
    if len(found) < 3:
        raise ValueError("a header without descr, fortran_order and shape")
    descr, fortran, shape = found[b"descr"][1:-1], found[b"fortran_order"], found[b"shape"]
    if not _NUMBERS.fullmatch(descr):
        raise ValueError(f"{descr[:60].decode('latin-1')!r} in place of numbers")
    sizes = shape[1:-1].split(b",") if shape[:1] == b"(" else [b"?"]
    # (3,) has a comma at its end and () no number; a number of thousands of digits is none that Python reads.
    sizes = sizes[:-1] if not sizes[-1].strip() else sizes
    if len(sizes) > 32 or not all(re.fullmatch(rb"\s*\d{1,19}\s*", size) for size in sizes):
        raise ValueError(f"the shape {shape[:60].decode('latin-1')}")
    if fortran not in (b"True", b"False"):
        raise ValueError("a header without fortran_order")
    return np.dtype(descr.decode()), "F" if fortran == b"True" else "C", tuple(int(size) for size in sizes)
