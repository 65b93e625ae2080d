"""Step the cells of a GRU through a sequence, a graph for each stage of layers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.blocks import GruWeights
from vkcat.blocks import gru as gru_block
from vkcat.errors import ShapeError, mismatch
from vkcat.graph import Graph, Role, Tensor
from vkcat.runner import Runner
from vkcat.sequences.conventions import Cell
from vkcat.sequences.steps import step_modes, step_through, within_lengths

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


def _stage(
    given: Sequence[Array],
    stage: Sequence[Sequence[Cell]],
    states: Sequence[Array],
    lengths: Array,
    reset: str,
    runner: Runner,
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
    run = runner([graph])
    try:
        for tensor, array in values.items():
            run.write(tensor, array)
        modes = step_modes(lengths, steps)
        out = step_through(run, graph.name, inputs, streams, given, mode, modes, np.float32)
        return out, [run.read(end).astype(np.float32) for end in ends]
    finally:
        run.close()


def _named(stage: Sequence[Sequence[Cell]]) -> Iterator[tuple[str, int, Cell]]:
    for at, layer in enumerate(stage):
        for d, cell in enumerate(layer):
            yield f"l{at}.d{d}", d, cell


def _weights(name: str, cell: Cell) -> tuple[GruWeights, dict[Tensor, Array]]:
    arrays = {"w_ih": cell.w_ih, "w_hh": cell.w_hh, "b_ih": cell.b_ih, "b_hh": cell.b_hh}
    tensors = {key: Tensor(f"{name}.{key}", array.shape, "float32", Role.WEIGHT) for key, array in arrays.items()}
    return GruWeights(**tensors), {tensors[key]: array for key, array in arrays.items()}
