"""What users hand in as numbers, checked: nothing is cut, and nothing becomes infinite, without a word."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vkcat.errors import InputError, ShapeError, mismatch

_KINDS = {"iu": "integers", "iuf": "numbers"}


def whole(subject: str, value: object) -> int:
    """An integer of Python or NumPy. Raises `InputError` for anything else, true and false among it."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise InputError(mismatch(subject, "an integer", repr(value)))
    return int(value)


def numbers(subject: str, values: ArrayLike, kinds: str) -> NDArray[Any]:
    """An array whose dtype is of `kinds` ("iu" or "iuf"); an empty one may be of any.

    Raises `ShapeError` for rows of different lengths, `InputError` for another dtype.
    """
    try:
        array = np.asarray(values)
    except (ValueError, TypeError) as error:
        raise ShapeError(mismatch(subject, "an array", f"rows of different lengths ({error})")) from error
    if array.size and array.dtype.kind not in kinds:
        raise InputError(mismatch(subject, _KINDS[kinds], f"an array of {array.dtype}"))
    return array if array.size else array.astype(np.int64 if kinds == "iu" else np.float32)


def float32(subject: str, values: ArrayLike) -> NDArray[np.float32]:
    """An array of numbers as float32. Raises as `numbers` does, and `InputError` for one that would become infinite."""
    array = numbers(subject, values, "iuf")
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float32)
    lost = np.isinf(narrow) & np.isfinite(array)
    if lost.any():
        raise InputError(mismatch(subject, "numbers that float32 can hold", array[lost].flat[0]))
    return narrow


def check_ids(subject: str, ids: NDArray[Any], count: int) -> None:
    """Raises `InputError` unless all of an array of integers are below `count`, and none is negative."""
    bad = ids[(ids < 0) | (ids >= count)]
    if bad.size:
        raise InputError(mismatch(subject, f"0 to {count - 1}", bad.flat[0]))
