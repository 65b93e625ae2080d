"""Sequences read many steps at a time: in which pieces, by which graphs, and how long one may take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.executor import Steps
from vkcat.graph import Tensor
from vkcat.model import Rows
from vkcat.runner import Runner

Array = NDArray[Any]

FEWEST_STEPS = 8
"""Shorter sequences go step by step."""

MOST_ROWS = 1024
"""Steps of a piece times streams: products gain nothing from more, whose tensors might not fit a device."""

SIZES = (1, 2, 16, 64)
"""Steps of a piece. Each is a graph of its own, made when it is first needed, so they are few."""


def in_pieces(steps: int, batch: int) -> bool:
    """Whether sequences of so many steps, the longest's, are read in pieces."""
    return steps >= FEWEST_STEPS and 2 * batch <= MOST_ROWS


class Chunks:
    """Reads sequences in pieces, each of them one submission. `make` gives the graph of a kind over so many steps.

    Pieces begin with two steps and grow by what the last one took, so that none takes longer than the runner's limit.
    However a sequence is cut, the numbers are the same; but they are not, to the last bit, those of single steps, whose
    sums are taken in another order. `constants` are written where a graph reads them. `made` are graphs, by kind and
    steps, that are there already.
    """

    def __init__(
        self,
        make: Callable[[str, int], Rows],
        steps: Steps,
        runner: Runner,
        constants: Mapping[Tensor, Array],
        made: Mapping[tuple[str, int], Rows] | None = None,
    ) -> None:
        self._make, self._steps, self._runner, self._constants = make, steps, runner, constants
        self._graphs = dict(made or {})
        self._most: dict[str, int] = {}

    def next(self, kind: str, left: int, batch: int) -> int:
        """How many steps of each stream to read next where so many are left: at least half of a piece's are."""
        most = self._most.setdefault(kind, 2)
        return max(size for size in SIZES if size <= max(min(most, 2 * left, MOST_ROWS // batch), 1))

    def cut(self, kind: str, steps: int, batch: int) -> Iterator[tuple[int, int]]:
        """Where each piece of so many steps begins and its length, told as it is to be read."""
        at = 0
        while at < steps:
            count = self.next(kind, steps - at, batch)
            yield at, count
            at += count

    def read(self, kind: str, given: Sequence[Array], lengths: Array, at: int, count: int) -> list[Array]:
        """Read `count` steps from `at` on of `given` (T, B, ...), one for each input; `lengths` (B) are of the whole.

        Returns the graph's outputs.
        """
        made = self._graph(kind, count)
        for tensor, x in zip(made.inputs, given, strict=True):
            piece = x[at : at + count]
            rows = np.zeros(tensor.shape, tensor.dtype)
            rows[: piece.shape[0] * piece.shape[1]] = piece.reshape(-1, *tensor.shape[1:])
            self._steps.write(tensor, rows)
        if made.lengths is not None:
            self._steps.write(made.lengths, np.clip(lengths - at, 0, count).astype(np.uint32))
        begin = perf_counter_ns()
        self._steps.step(made.graph.name)
        self._grow(kind, (perf_counter_ns() - begin) / count)
        return [self._steps.read(y) for y in made.outputs]

    def _grow(self, kind: str, step_ns: float) -> None:
        fitting = self._runner.submit_limit_ms * 1e6 / max(step_ns, 1)
        self._most[kind] = max(size for size in SIZES if size <= max(min(fitting, 8 * self._most[kind]), 1))

    def _graph(self, kind: str, count: int) -> Rows:
        if (kind, count) not in self._graphs:
            made = self._make(kind, count)
            (planned,) = self._runner.planned((made.graph,))
            # Those that fused steps have no use for were never written.
            constants = {t: self._constants[t] for t in planned.tensors() if t in self._constants}
            self._steps.add((planned,), constants)
            self._graphs[kind, count] = made
        return self._graphs[kind, count]
