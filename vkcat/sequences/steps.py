"""Go through whole sequences with one graph, a step at a time, each sequence to its own length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from vkcat.chunks import Chunks
from vkcat.executor import Steps
from vkcat.graph import Tensor
from vkcat.ops.gates import HOLD, RESTART, STEP

Array = NDArray[Any]


def within_lengths(array: Array, lengths: Array) -> Array:
    """Reverse each sequence inside its own length: (T, B, ...) by `lengths` (B). It is its own inverse."""
    t = np.arange(len(array))[:, None]
    source = np.where(t < lengths, lengths - 1 - t, t)
    return np.asarray(array[source, np.arange(array.shape[1])])


def step_modes(lengths: Array, steps: int) -> Array:
    """(T, B) uint32: each sequence steps to its length (B), and holds from there on."""
    return np.where(np.arange(steps)[:, None] < lengths, STEP, HOLD).astype(np.uint32)


def pieces_through(
    chunks: Chunks, kind: str, run: Steps, given: Sequence[Array], mode: Tensor, lengths: Array, *, restart: bool
) -> list[Array]:
    """The outputs (T, B, ...) of `given` (T, B, ...), read in pieces; past the `lengths` (B) of sequences they are 0.

    With `restart` they begin from nothing, else from the states as they are.
    """
    steps, batch = given[0].shape[:2]
    pieces: list[list[Array]] = []
    for at, count in chunks.cut(kind, steps, batch):
        run.write(mode, np.full(batch, RESTART if restart and at == 0 else STEP, np.uint32))
        pieces.append(chunks.read(kind, given, lengths, at, count))
    made = [np.concatenate([y.reshape(-1, batch, y.shape[-1]) for y in ys])[:steps] for ys in zip(*pieces, strict=True)]
    live = (np.arange(steps)[:, None] < lengths)[..., None]
    return [np.where(live, y, 0) for y in made]


def step_through(
    run: Steps,
    graph: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    given: Sequence[Array],
    mode: Tensor,
    modes: Array,
    dtype: DTypeLike,
) -> list[Array]:
    """Each of `outputs` (T, B, ...) after every step of `given` (T, B, ...), one for each of `inputs`.

    `modes` (T, B) is written to `mode` step by step. Where a sequence holds, its outputs are 0.
    """
    made = [np.zeros((len(modes), *tensor.shape), dtype) for tensor in outputs]
    for t, now in enumerate(modes):
        for tensor, x in zip(inputs, given, strict=True):
            run.write(tensor, x[t])
        run.write(mode, now)
        run.step(graph)
        for y, tensor in zip(made, outputs, strict=True):
            y[t] = np.where((now != HOLD)[:, None], run.read(tensor), 0)
    return made
