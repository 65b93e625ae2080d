"""Step the cells of a GRU through a sequence, a graph for each stage of layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.blocks import GruWeights, gru_rows
from vkcat.blocks import gru as gru_block
from vkcat.chunks import SIZES, Chunks, in_pieces
from vkcat.errors import ShapeError, mismatch
from vkcat.graph import Graph, Role, Tensor
from vkcat.model import Rows, lengths_input
from vkcat.runner import Runner
from vkcat.sequences.conventions import Cell
from vkcat.sequences.steps import pieces_through, step_modes, step_through, within_lengths

Array = NDArray[Any]


def run_layers(
    x: Array,
    layers: Sequence[Sequence[Cell]],
    states: Sequence[Array],
    lengths: Array,
    reversals: tuple[bool, ...],
    reset: str,
    runner: Runner,
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
        given = [within_lengths(x, lengths) if reverse else x for reverse in reversals]
        streams, final = _stage(given, stage, states[at : at + count], lengths, reset, runner)
        last += final
        at += count
        x = np.concatenate(
            [within_lengths(y, lengths) if reverse else y for y, reverse in zip(streams, reversals, strict=True)],
            axis=2,
        )
    return x, np.stack(last)


FEWEST_STEPS = 256
"""Shorter sequences go step by step: the graphs of pieces would take longer to make than they save."""


def _stage(
    given: Sequence[Array],
    stage: Sequence[Sequence[Cell]],
    states: Sequence[Array],
    lengths: Array,
    reset: str,
    runner: Runner,
) -> tuple[list[Array], list[Array]]:
    """Run the cells over all steps: y of each direction (T, B, H), and the last state of each cell."""
    steps, batch = given[0].shape[:2]
    cells = _Cells(stage, [x.shape[2] for x in given], batch, reset)
    at_once = steps >= FEWEST_STEPS and in_pieces(steps, batch) and reset == "after" and not runner.is_reference
    first = cells.rows(SIZES[1]) if at_once else cells.step()
    run = runner([first.graph])
    try:
        for tensor, array in {**cells.weights, **dict(zip(cells.states, states, strict=True))}.items():
            run.write(tensor, array)
        if at_once:
            chunks = Chunks(lambda _, count: cells.rows(count), run, runner, {}, {("gru", SIZES[1]): first})
            out = pieces_through(chunks, "gru", run, given, cells.mode, lengths, restart=False)
        else:
            modes = step_modes(lengths, steps)
            out = step_through(run, "gru", first.inputs, first.outputs, given, cells.mode, modes, np.float32)
        return out, [run.read_state(h).astype(np.float32) for h in cells.states]
    finally:
        run.close()


class _Cells:
    """Graphs of cells of one or two directions of `widths` inputs; `weights` by tensor, `states` in the cells' order.

    Raises `ShapeError` where a weight does not fit.
    """

    def __init__(self, stage: Sequence[Sequence[Cell]], widths: Sequence[int], batch: int, reset: str) -> None:
        self._reset, self._batch, self._widths = reset, batch, list(widths)
        self._cells: list[tuple[str, int, GruWeights]] = []
        self.weights: dict[Tensor, Array] = {}
        self.states: list[Tensor] = []
        self.mode = Tensor("mode", (batch,), "uint32", Role.INPUT)
        widths = list(widths)
        for name, d, cell in _named(stage):
            if cell.w_ih.shape[1] != widths[d]:
                raise ShapeError(mismatch(f"gru: w_ih of {name}", (3 * cell.hidden, widths[d]), cell.w_ih.shape))
            widths[d] = cell.hidden
            tensors, arrays = _weights(name, cell)
            self._cells.append((name, d, tensors))
            self.weights |= arrays
            self.states.append(Tensor(f"{name}.h", (batch, cell.hidden), "float32", Role.STATE))

    def step(self) -> Rows:
        """One step of each stream."""
        graph, inputs = Graph("gru"), self._inputs(1)
        streams = list(inputs)
        for (name, d, weights), h in zip(self._cells, self.states, strict=True):
            streams[d] = gru_block(graph, name, streams[d], h, self.mode, weights, self._reset)
        return self._made(graph, inputs, None, streams)

    def rows(self, steps: int) -> Rows:
        """So many steps at a time."""
        graph, inputs, lengths = Graph(f"gru x {steps}"), self._inputs(steps), lengths_input(self._batch)
        streams = list(inputs)
        for (name, d, weights), h in zip(self._cells, self.states, strict=True):
            y = Tensor(f"{name}.y", (steps * self._batch, h.shape[1]), "float32", Role.MEMORY)
            streams[d] = gru_rows(graph, name, streams[d], h, self.mode, lengths, weights, y)
        return self._made(graph, inputs, lengths, streams)

    def _inputs(self, steps: int) -> tuple[Tensor, ...]:
        rows = steps * self._batch
        return tuple(Tensor(f"x.{d}", (rows, width), "float32", Role.INPUT) for d, width in enumerate(self._widths))

    def _made(self, graph: Graph, inputs: tuple[Tensor, ...], lengths: Tensor | None, streams: list[Tensor]) -> Rows:
        for tensor in streams:
            graph.output(tensor)
        return Rows(graph, inputs, lengths, tuple(streams))


def _named(stage: Sequence[Sequence[Cell]]) -> Iterator[tuple[str, int, Cell]]:
    for at, layer in enumerate(stage):
        for d, cell in enumerate(layer):
            yield f"l{at}.d{d}", d, cell


def _weights(name: str, cell: Cell) -> tuple[GruWeights, dict[Tensor, Array]]:
    arrays = {"w_ih": cell.w_ih, "w_hh": cell.w_hh, "b_ih": cell.b_ih, "b_hh": cell.b_hh}
    tensors = {key: Tensor(f"{name}.{key}", array.shape, "float32", Role.WEIGHT) for key, array in arrays.items()}
    return GruWeights(**tensors), {tensors[key]: array for key, array in arrays.items()}
