"""Whole GRU sequences on a device: layers, directions and lengths, by torch's or ONNX's conventions."""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vkcat.blocks import GruWeights
from vkcat.blocks import gru as gru_block
from vkcat.device.backends import open_device
from vkcat.device.interface import Device
from vkcat.errors import InputError, ShapeError, mismatch
from vkcat.executor import Executor, Steps
from vkcat.graph import Graph, Role, Tensor
from vkcat.ops.gru_cell import HOLD, STEP
from vkcat.reference import ReferenceExecutor

Array = NDArray[Any]
Weights = ArrayLike | Sequence[ArrayLike]

_DIRECTIONS = {"forward": (False,), "reverse": (True,), "both": (False, True), "bidirectional": (False, True)}


class GruOutput(NamedTuple):
    """y: the last layer's state at every step. h: every layer's and direction's last state."""

    y: Array
    h: Array


@dataclass(frozen=True)
class _Cell:
    """Weights of one layer and direction, gates in the order r, z, n."""

    w_ih: Array
    w_hh: Array
    b_ih: Array
    b_hh: Array

    @property
    def hidden(self) -> int:
        return int(self.w_hh.shape[1])


def gru(
    x: ArrayLike,
    w_ih: Weights,
    w_hh: Weights,
    b_ih: Weights | None = None,
    b_hh: Weights | None = None,
    h0: ArrayLike | None = None,
    *,
    convention: str = "torch",
    direction: str = "forward",
    lengths: ArrayLike | None = None,
    reset: str | None = None,
    batch_first: bool = False,
    device: Device | str | None = None,
    backend: str = "vulkan",
    schedule: str = "replay",
) -> GruOutput:
    """A GRU over whole sequences: T steps, B sequences, I inputs, H hidden units, L layers, D directions.

    `convention="torch"` (torch.nn.GRU: gates r, z, n; reset after):

    | argument | shape |
    |---|---|
    | x | (T, B, I), or (B, T, I) with `batch_first`; (T, I) for one sequence |
    | w_ih, w_hh, b_ih, b_hh | (3H, I), (3H, H), (3H), (3H); I is D * H from layer 1 on |
    | h0, h | (L * D, B, H) |
    | y | (T, B, D * H), or (B, T, D * H) |

    Weights are lists of L * D arrays in torch's order (l0, l0_reverse, l1, ...), or one array each.

    `convention="onnx"` (ONNX GRU: gates z, r, h; reset before; `linear_before_reset=1` is `reset="after"` and
    `layout=1` is `batch_first`):

    | argument | shape |
    |---|---|
    | x | (T, B, I), or (B, T, I) |
    | w_ih (W), w_hh (R) | (D, 3H, I), (D, 3H, H) |
    | b_ih (B) | (D, 6H), both biases; or (D, 3H) with b_hh (D, 3H) |
    | h0, h | (D, B, H), or (B, D, H) |
    | y | (T, D, B, H), or (B, T, D, H) |

    `direction` is forward, reverse or both (torch has no reverse alone: it takes D = 1 list entries a layer). `lengths`
    (B) are the steps of each sequence; past them y is zero and h stays. Everything is computed in float32.

    `device` is an open device, an index, part of a name, or "reference" for the float64 reference; by default the best
    device, opened once and kept. Equations: `vkcat.ops.gru_cell`, `vkcat.ops.gru_gates`.

    Raises `ShapeError` or `InputError` naming the argument, `DeviceError` from the device.
    """
    if convention not in ("torch", "onnx"):
        raise InputError(mismatch("gru: convention", "'torch' or 'onnx'", repr(convention)))
    if direction not in _DIRECTIONS:
        raise InputError(mismatch("gru: direction", "'forward', 'reverse' or 'both'", repr(direction)))
    onnx = convention == "onnx"
    reset = reset or ("before" if onnx else "after")
    if reset not in ("after", "before"):
        raise InputError(mismatch("gru: reset", "'after' or 'before'", repr(reset)))
    reversals = _DIRECTIONS[direction]
    read = _onnx_cells if onnx else _torch_cells
    cells = read(len(reversals), w_ih, w_hh, b_ih, b_hh)
    steps_first = _sequence(x, batch_first)
    unbatched = steps_first.ndim == 2
    if unbatched:
        steps_first = steps_first[:, None]
    ends = _lengths(lengths, *steps_first.shape[:2])
    layers = [cells[at : at + len(reversals)] for at in range(0, len(cells), len(reversals))]
    states = _initial(h0, cells, steps_first.shape[1], swap=onnx and batch_first, unbatched=unbatched)
    y, h = _run(steps_first, layers, states, ends, reversals, reset, _Runner(device, backend, schedule))
    if onnx:
        return _onnx_output(y, h, len(reversals), batch_first)
    if unbatched:
        return GruOutput(y[:, 0], h[:, 0])
    return GruOutput(y.swapaxes(0, 1) if batch_first else y, h)


def _sequence(x: ArrayLike, batch_first: bool) -> Array:
    array = _float32("x", x)
    if array.ndim == 3 and batch_first:
        array = array.swapaxes(0, 1)
    if array.ndim not in (2, 3) or 0 in array.shape:
        raise ShapeError(mismatch("gru: x", "(T, B, I) or (T, I), none of them 0", array.shape))
    return array


def _float32(name: str, value: ArrayLike) -> Array:
    array = np.asarray(value)
    if array.dtype.kind not in "fiu":
        raise InputError(mismatch(f"gru: {name}", "numbers", array.dtype))
    return array.astype(np.float32)


def _lengths(lengths: ArrayLike | None, steps: int, batch: int) -> Array:
    if lengths is None:
        return np.full(batch, steps)
    array = np.asarray(lengths)
    if array.shape != (batch,) or array.dtype.kind not in "iu":
        raise ShapeError(mismatch("gru: lengths", f"integers ({batch},)", f"{array.dtype} {array.shape}"))
    if array.min() < 0 or array.max() > steps:
        raise InputError(mismatch("gru: lengths", f"0 to {steps}", array.tolist()))
    return array.astype(np.int64)


def _arrays(name: str, value: Weights) -> list[Array]:
    """One array, or a sequence of them, as a list."""
    if (
        isinstance(value, list | tuple)
        and all(np.ndim(item) > 0 for item in value)
        and np.ndim(value[0]) >= (2 if name.startswith("w") else 1)
    ):
        return [_float32(f"{name}[{at}]", item) for at, item in enumerate(value)]
    return [_float32(name, value)]  # type: ignore[arg-type]


def _torch_cells(
    directions: int, w_ih: Weights, w_hh: Weights, b_ih: Weights | None, b_hh: Weights | None
) -> list[_Cell]:
    input_weights, state_weights = _arrays("w_ih", w_ih), _arrays("w_hh", w_hh)
    count = len(input_weights)
    if count % directions:
        raise ShapeError(mismatch("gru: w_ih", f"a multiple of {directions} arrays, one a direction", count))
    biases = [
        [np.zeros(len(w), np.float32) for w in input_weights] if bias is None else _arrays(name, bias)
        for name, bias in (("b_ih", b_ih), ("b_hh", b_hh))
    ]
    for name, arrays in (("w_hh", state_weights), ("b_ih", biases[0]), ("b_hh", biases[1])):
        if len(arrays) != count:
            raise ShapeError(mismatch(f"gru: {name}", f"{count} arrays as w_ih", len(arrays)))
    cells = [_Cell(*parts) for parts in zip(input_weights, state_weights, *biases, strict=True)]
    for at, cell in enumerate(cells):
        _check_cell(cell, f"[{at}]")
    return cells


def _check_cell(cell: _Cell, at: str) -> None:
    if cell.w_hh.ndim != 2 or cell.w_hh.shape[0] != 3 * cell.w_hh.shape[1] or 0 in cell.w_hh.shape:
        raise ShapeError(mismatch(f"gru: w_hh{at}", "(3H, H)", cell.w_hh.shape))
    rows = 3 * cell.hidden
    for name, array, dimensions in (("w_ih", cell.w_ih, 2), ("b_ih", cell.b_ih, 1), ("b_hh", cell.b_hh, 1)):
        if array.ndim != dimensions or array.shape[0] != rows or 0 in array.shape:
            raise ShapeError(mismatch(f"gru: {name}{at}", f"({rows}{', I' if dimensions == 2 else ''})", array.shape))


def _onnx_cells(
    directions: int, w_ih: Weights, w_hh: Weights, b_ih: Weights | None, b_hh: Weights | None
) -> list[_Cell]:
    """ONNX stacks directions in the first axis and orders gates z, r, h."""
    w, r = _float32("w_ih", w_ih), _float32("w_hh", w_hh)  # type: ignore[arg-type]
    if w.ndim != 3 or len(w) != directions:
        raise ShapeError(mismatch("gru: w_ih", f"({directions}, 3H, I)", w.shape))
    if r.ndim != 3 or len(r) != directions:
        raise ShapeError(mismatch("gru: w_hh", f"({directions}, 3H, H)", r.shape))
    rows = r.shape[1]
    zeros = np.zeros((directions, rows), np.float32)
    first = zeros if b_ih is None else _float32("b_ih", b_ih)  # type: ignore[arg-type]
    second = zeros if b_hh is None else _float32("b_hh", b_hh)  # type: ignore[arg-type]
    if b_hh is None and first.shape == (directions, 2 * rows):
        first, second = np.split(first, 2, axis=1)
    for name, bias in (("b_ih", first), ("b_hh", second)):
        if bias.shape != (directions, rows):
            raise ShapeError(mismatch(f"gru: {name}", f"({directions}, {rows})", bias.shape))
    cells = [_Cell(*(_gates_rzn(part[d]) for part in (w, r, first, second))) for d in range(directions)]
    for at, cell in enumerate(cells):
        _check_cell(cell, f"[{at}]")
    return cells


def _gates_rzn(array: Array) -> Array:
    if array.shape[0] % 3:
        raise ShapeError(mismatch("gru: weights", "3H rows", array.shape))
    z, r, h = np.split(array, 3, axis=0)
    return np.concatenate([r, z, h], axis=0)


def _initial(h0: ArrayLike | None, cells: Sequence[_Cell], batch: int, *, swap: bool, unbatched: bool) -> list[Array]:
    if h0 is None:
        return [np.zeros((batch, cell.hidden), np.float32) for cell in cells]
    array = _float32("h0", h0)
    if unbatched and array.ndim == 2:
        array = array[:, None]
    if swap and array.ndim == 3:
        array = array.swapaxes(0, 1)
    if array.shape != (len(cells), batch, cells[0].hidden):
        raise ShapeError(mismatch("gru: h0", (len(cells), batch, cells[0].hidden), array.shape))
    return [np.ascontiguousarray(state) for state in array]


def _onnx_output(y: Array, h: Array, directions: int, batch_first: bool) -> GruOutput:
    steps, batch, width = y.shape
    split = y.reshape(steps, batch, directions, width // directions)
    if batch_first:
        return GruOutput(split.swapaxes(0, 1), h.swapaxes(0, 1))
    return GruOutput(split.swapaxes(1, 2), h)


class _Runner:
    """Makes what runs the graphs, on the device that was asked for."""

    def __init__(self, device: Device | str | None, backend: str, schedule: str) -> None:
        self._schedule = schedule
        self._reference = device == "reference"
        self._device: Device | None = None
        if not self._reference:
            self._device = _kept_device(backend, device) if device is None or isinstance(device, str) else device

    def __call__(self, graph: Graph) -> Steps:
        if self._device is None:
            return ReferenceExecutor([graph])
        return Executor(self._device, [graph], self._schedule)


@lru_cache(maxsize=None)
def _kept_device(backend: str, wanted: str | None) -> Device:
    device = open_device(backend, wanted)
    atexit.register(device.close)
    return device


def _within_lengths(array: Array, lengths: Array) -> Array:
    """Reverse each sequence inside its own length: (T, B, ...) by `lengths` (B). It is its own inverse."""
    t = np.arange(len(array))[:, None]
    source = np.where(t < lengths, lengths - 1 - t, t)
    return np.asarray(array[source, np.arange(array.shape[1])])


def _run(
    x: Array,
    layers: Sequence[Sequence[_Cell]],
    states: Sequence[Array],
    lengths: Array,
    reversals: tuple[bool, ...],
    reset: str,
    runner: _Runner,
) -> tuple[Array, Array]:
    """(T, B, D * H) of the last layer and (L * D, B, H).

    Layers of one direction run together, a step through all of them; with two directions a layer needs the whole of the
    one before.
    """
    together = [layers] if len(reversals) == 1 else [[layer] for layer in layers]
    last: list[Array] = []
    at = 0
    for stage in together:
        count = sum(len(layer) for layer in stage)
        given = [_within_lengths(x, lengths) if reverse else x for reverse in reversals]
        streams, final = _stage(given, stage, states[at : at + count], lengths, reset, runner)
        last += final
        at += count
        x = np.concatenate(
            [_within_lengths(y, lengths) if reverse else y for y, reverse in zip(streams, reversals, strict=True)],
            axis=2,
        )
    return x, np.stack(last)


def _stage(
    given: Sequence[Array],
    stage: Sequence[Sequence[_Cell]],
    states: Sequence[Array],
    lengths: Array,
    reset: str,
    runner: _Runner,
) -> tuple[list[Array], list[Array]]:
    """Run one graph over all steps: y of each direction (T, B, H), and the last state of each cell."""
    steps, batch = given[0].shape[:2]
    graph = Graph("gru")
    mode = Tensor("mode", (batch,), "uint32", Role.INPUT)
    inputs = [Tensor(f"x.{d}", (batch, x.shape[2]), "float32", Role.INPUT) for d, x in enumerate(given)]
    streams: list[Tensor] = list(inputs)
    cells = list(_named(stage))
    values: dict[Tensor, Array] = {}
    ends: list[Tensor] = []
    for (name, d, cell), state in zip(cells, states, strict=True):
        if cell.w_ih.shape[1] != streams[d].shape[1]:
            raise ShapeError(mismatch(f"gru: w_ih of {name}", (3 * cell.hidden, streams[d].shape[1]), cell.w_ih.shape))
        weights, arrays = _weights(name, cell)
        h = Tensor(f"{name}.h", (batch, cell.hidden), "float32", Role.STATE)
        streams[d] = gru_block(graph, name, streams[d], h, mode, weights, reset)
        graph.output(streams[d])
        ends.append(streams[d])
        values |= {**arrays, h: state}
    run = runner(graph)
    try:
        for tensor, array in values.items():
            run.write(tensor, array)
        out = [np.zeros((steps, batch, stream.shape[1]), np.float32) for stream in streams]
        for t in range(steps):
            for tensor, x in zip(inputs, given, strict=True):
                run.write(tensor, x[t])
            run.write(mode, np.where(t < lengths, STEP, HOLD).astype(np.uint32))
            run.step("gru")
            for y, stream in zip(out, streams, strict=True):
                y[t] = np.where((t < lengths)[:, None], run.read(stream), 0)
        return out, [run.read(end).astype(np.float32) for end in ends]
    finally:
        run.close()


def _named(stage: Sequence[Sequence[_Cell]]) -> Iterator[tuple[str, int, _Cell]]:
    for at, layer in enumerate(stage):
        for d, cell in enumerate(layer):
            yield f"l{at}.d{d}", d, cell


def _weights(name: str, cell: _Cell) -> tuple[GruWeights, dict[Tensor, Array]]:
    arrays = {"w_ih": cell.w_ih, "w_hh": cell.w_hh, "b_ih": cell.b_ih, "b_hh": cell.b_hh}
    tensors = {key: Tensor(f"{name}.{key}", array.shape, "float32", Role.WEIGHT) for key, array in arrays.items()}
    return GruWeights(**tensors), {tensors[key]: array for key, array in arrays.items()}
