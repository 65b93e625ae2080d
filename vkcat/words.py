"""Tensors as the words of device memory: rows with their padding, one after the other or in panels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.graph import Tensor

Array = NDArray[Any]

PADDING: dict[type[np.unsignedinteger[Any]], int] = {np.uint32: 0x7FC00000, np.uint16: 0x7E00}
"""What the host leaves in the padding of rows: a quiet NaN."""


def padded(tensor: Tensor, values: Array) -> NDArray[np.uint32]:
    """The words of a tensor's rows.

    A shader that lets padding count shows it: NaN, or an index past every table.
    """
    if tensor.pitch == tensor.shape[-1]:
        return values.reshape(-1).view(np.uint32)
    word = np.uint32 if values.dtype.itemsize == 4 else np.uint16
    rows = np.full((*tensor.shape[:-1], tensor.pitch), PADDING[word], word)
    rows[..., : tensor.shape[-1]] = values.view(word)
    return rows.view(np.uint32)


def _row_words(tensor: Tensor) -> int:
    """Words of four numbers of a row."""
    return tensor.nbytes // tensor.rows // 4 // (tensor.pitch // 4)


def device_words(tensor: Tensor, values: Array, panel: int) -> NDArray[np.uint32]:
    """The words of a tensor as they lie on a device; in panels where those have more than one row."""
    words = padded(tensor, np.ascontiguousarray(values))
    return words if panel == 1 else in_panels(tensor, words, panel)


def in_panels(tensor: Tensor, words: NDArray[np.uint32], panel: int) -> NDArray[np.uint32]:
    """A matrix's words, given row by row, as they lie in panels of so many rows; rows that fill the last are zeros."""
    fours, each = tensor.pitch // 4, _row_words(tensor)
    rows = np.zeros((-(-tensor.rows // panel) * panel, fours, each), np.uint32)
    rows[: tensor.rows] = words.reshape(tensor.rows, fours, each)
    return np.ascontiguousarray(rows.reshape(-1, panel, fours, each).swapaxes(1, 2)).reshape(-1)


def from_panels(tensor: Tensor, words: NDArray[np.uint32], panel: int) -> NDArray[np.uint32]:
    """The inverse of `in_panels`."""
    fours, each = tensor.pitch // 4, _row_words(tensor)
    rows = words.reshape(-1, fours, panel, each).swapaxes(1, 2).reshape(-1, fours, each)
    return np.ascontiguousarray(rows[: tensor.rows]).reshape(-1)
