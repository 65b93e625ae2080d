"""torch's and ONNX's conventions for a GRU's arguments, as one list of cells with the gates in the order r, z, n."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import ArrayLike, NDArray

from vkcat.arrays import float32, numbers
from vkcat.errors import InputError, ShapeError, mismatch

Array = NDArray[Any]
Weights = ArrayLike | Sequence[ArrayLike]


class Cell(Struct, frozen=True):
    """Weights of one layer and direction, gates in the order r, z, n."""

    w_ih: Array
    w_hh: Array
    b_ih: Array
    b_hh: Array

    @property
    def hidden(self) -> int:
        return int(self.w_hh.shape[1])


def steps_first(x: ArrayLike, batch_first: bool) -> Array:
    array = float32("gru: x", x)
    if array.ndim == 3 and batch_first:
        array = array.swapaxes(0, 1)
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise ShapeError(mismatch("gru: x", "(T, B, I) or (T, I), none of them 0", array.shape))
    return array


def step_counts(subject: str, lengths: ArrayLike | None, steps: int, batch: int) -> Array:
    """Steps of each sequence (B). `subject` begins the errors, `ShapeError` and `InputError`."""
    if lengths is None:
        return np.full(batch, steps)
    array = numbers(f"{subject}: lengths", lengths, "iu")
    if array.shape != (batch,):
        raise ShapeError(mismatch(f"{subject}: lengths", f"integers ({batch},)", array.shape))
    if array.min() < 0 or array.max() > steps:
        raise InputError(mismatch(f"{subject}: lengths", f"0 to {steps}", array.tolist()))
    return array.astype(np.int64)


def _arrays(name: str, value: Weights) -> list[Array]:
    """One array, or a sequence of at least one of them, as a list."""
    dimensions = 2 if name.startswith("w") else 1
    if isinstance(value, list | tuple):
        if not value:
            raise ShapeError(mismatch(f"gru: {name}", "an array, or at least one in a list", "an empty list"))
        parts = [float32(f"gru: {name}[{at}]", item) for at, item in enumerate(value)]
        if all(part.ndim == dimensions for part in parts):
            return parts
    return [float32(f"gru: {name}", value)]  # type: ignore[arg-type]


def torch_cells(
    directions: int, w_ih: Weights, w_hh: Weights, b_ih: Weights | None, b_hh: Weights | None
) -> list[Cell]:
    input_weights, state_weights = _arrays("w_ih", w_ih), _arrays("w_hh", w_hh)
    count = len(input_weights)
    if count % directions:
        raise ShapeError(mismatch("gru: w_ih", f"a multiple of {directions} arrays, one a direction", count))
    biases = [
        [np.zeros(w.shape[:1], np.float32) for w in input_weights] if bias is None else _arrays(name, bias)
        for name, bias in (("b_ih", b_ih), ("b_hh", b_hh))
    ]
    for name, arrays in (("w_hh", state_weights), ("b_ih", biases[0]), ("b_hh", biases[1])):
        if len(arrays) != count:
            raise ShapeError(mismatch(f"gru: {name}", f"{count} arrays as w_ih", len(arrays)))
    cells = [Cell(*parts) for parts in zip(input_weights, state_weights, *biases, strict=True)]
    for at, cell in enumerate(cells):
        _check_cell(cell, f"[{at}]")
    hidden = [cell.hidden for cell in cells]
    if len(set(hidden)) > 1:
        raise ShapeError(mismatch("gru: w_hh", "the same H in all arrays", hidden))
    return cells


def _check_cell(cell: Cell, at: str) -> None:
    if cell.w_hh.ndim != 2 or cell.w_hh.shape[0] != 3 * cell.w_hh.shape[1] or 0 in cell.w_hh.shape:
        raise ShapeError(mismatch(f"gru: w_hh{at}", "(3H, H)", cell.w_hh.shape))
    rows = 3 * cell.hidden
    for name, array, dimensions in (("w_ih", cell.w_ih, 2), ("b_ih", cell.b_ih, 1), ("b_hh", cell.b_hh, 1)):
        if array.ndim != dimensions or array.shape[0] != rows or 0 in array.shape:
            raise ShapeError(mismatch(f"gru: {name}{at}", f"({rows}{', I' if dimensions == 2 else ''})", array.shape))


def onnx_cells(directions: int, w_ih: Weights, w_hh: Weights, b_ih: Weights | None, b_hh: Weights | None) -> list[Cell]:
    """ONNX stacks directions in the first axis and orders gates z, r, h."""
    w, r = float32("gru: w_ih", w_ih), float32("gru: w_hh", w_hh)  # type: ignore[arg-type]
    if w.ndim != 3 or len(w) != directions:
        raise ShapeError(mismatch("gru: w_ih", f"({directions}, 3H, I)", w.shape))
    if r.ndim != 3 or len(r) != directions:
        raise ShapeError(mismatch("gru: w_hh", f"({directions}, 3H, H)", r.shape))
    rows = r.shape[1]
    zeros = np.zeros((directions, rows), np.float32)
    first = zeros if b_ih is None else float32("gru: b_ih", b_ih)  # type: ignore[arg-type]
    second = zeros if b_hh is None else float32("gru: b_hh", b_hh)  # type: ignore[arg-type]
    if b_hh is None and first.shape == (directions, 2 * rows):
        first, second = np.split(first, 2, axis=1)
    for name, bias in (("b_ih", first), ("b_hh", second)):
        if bias.shape != (directions, rows):
            raise ShapeError(mismatch(f"gru: {name}", f"({directions}, {rows})", bias.shape))
    cells = [Cell(*(_gates_rzn(part[d]) for part in (w, r, first, second))) for d in range(directions)]
    for at, cell in enumerate(cells):
        _check_cell(cell, f"[{at}]")
    return cells


def _gates_rzn(array: Array) -> Array:
    if array.shape[0] % 3:
        raise ShapeError(mismatch("gru: weights", "3H rows", array.shape))
    z, r, h = np.split(array, 3, axis=0)
    return np.concatenate([r, z, h], axis=0)


def initial_states(
    h0: ArrayLike | None, cells: Sequence[Cell], batch: int, *, swap: bool, unbatched: bool
) -> list[Array]:
    if h0 is None:
        return [np.zeros((batch, cell.hidden), np.float32) for cell in cells]
    array = float32("gru: h0", h0)
    if unbatched and array.ndim == 2:
        array = array[:, None]
    if swap and array.ndim == 3:
        array = array.swapaxes(0, 1)
    if array.shape != (len(cells), batch, cells[0].hidden):
        expected = (batch, len(cells), cells[0].hidden) if swap else (len(cells), batch, cells[0].hidden)
        raise ShapeError(mismatch("gru: h0", expected, np.shape(h0)))
    return [np.ascontiguousarray(state) for state in array]


def onnx_output(y: Array, h: Array, directions: int, batch_first: bool) -> tuple[Array, Array]:
    steps, batch, width = y.shape
    split = y.reshape(steps, batch, directions, width // directions)
    if batch_first:
        return split.swapaxes(0, 1), h.swapaxes(0, 1)
    return split.swapaxes(1, 2), h
