"""Go through whole sequences with one graph, a step at a time, each sequence to its own length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from vkcat.executor import Steps
from vkcat.graph import Tensor
from vkcat.ops.gates import HOLD, STEP

Array = NDArray[Any]


def within_lengths(array: Array, lengths: Array) -> Array:
    """Reverse each sequence inside its own length: (T, B, ...) by `lengths` (B). It is its own inverse."""
    t = np.arange(len(array))[:, None]
    source = np.where(t < lengths, lengths - 1 - t, t)
    return np.asarray(array[source, np.arange(array.shape[1])])


def step_modes(lengths: Array, steps: int) -> Array:
    """(T, B) uint32: each sequence steps to its length (B), and holds from there on."""
    return np.where(np.arange(steps)[:, None] < lengths, STEP, HOLD).astype(np.uint32)


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
