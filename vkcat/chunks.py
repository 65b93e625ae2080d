"""Sequences read many steps at a time: which pieces, their graphs, and how long one may take."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.executor import Steps
from vkcat.model import StreamModel
from vkcat.model.prefill import Prefill, prefill_graph, reads_rows
from vkcat.runner import Runner

Array = NDArray[Any]

FEWEST_STEPS = 8
"""Shorter sequences go step by step."""

SIZES = (1, 2, 16, 64)
"""Steps of a piece. Each is a graph of its own, made when it is first needed, so they are few."""


class Chunks:
    """Reads sequences of one model in pieces, each of them one submission.

    Pieces begin with two steps and grow by what the last one took, so that none takes longer than the runner's limit.
    However a sequence is cut, the numbers are the same; but they are not, to the last bit, those of single steps, whose
    sums are taken in another order.
    """

    def __init__(self, model: StreamModel, steps: Steps, runner: Runner) -> None:
        self._model, self._steps, self._runner = model, steps, runner
        self._graphs: dict[tuple[str, int], Prefill] = {}
        self._most: dict[str, int] = {}
        self._takes_rows = reads_rows(model.config.stack)

    def takes(self, count: int) -> bool:
        """Whether sequences of `count` steps, the longest's, are read in pieces."""
        return self._takes_rows and count >= FEWEST_STEPS

    def next(self, kind: str, left: int) -> int:
        """How many steps to read next where so many are left: at least half of them are."""
        most = self._most.setdefault(kind, 2)
        return max(size for size in SIZES if size <= min(most, 2 * left))

    def read(self, kind: str, x: Array, lengths: Array, count: int) -> Array:
        """Read x, up to `count` steps (T, B, ...), of which each stream reads the first `lengths` (B).

        Returns the outputs (B, V) of the last, or of features of each step (T, B, V).
        """
        made = self._graph(kind, count)
        rows = np.zeros(made.x.shape, made.x.dtype)
        rows[: x.shape[0] * x.shape[1]] = x.reshape(-1, *made.x.shape[1:])
        self._steps.write(made.x, rows)
        self._steps.write(made.lengths, lengths.astype(np.uint32))
        begin = perf_counter_ns()
        self._steps.step(made.graph.name)
        self._grow(kind, (perf_counter_ns() - begin) / count)
        y = self._steps.read(made.y)
        return y if kind == "tokens" else y.reshape(count, self._model.batch, -1)[: len(x)]

    def _grow(self, kind: str, step_ns: float) -> None:
        fitting = self._runner.submit_limit_ms * 1e6 / max(step_ns, 1)
        self._most[kind] = max(size for size in SIZES if size <= max(min(fitting, 8 * self._most[kind]), 1))

    def _graph(self, kind: str, count: int) -> Prefill:
        if (kind, count) not in self._graphs:
            made = prefill_graph(self._model, kind, count)
            (planned,) = self._runner.planned((made.graph,))
            self._steps.add((planned,))
            # Those that fused steps have no use for were never written.
            constants = self._model.shared.constants
            for tensor in constants.keys() & set(planned.tensors()):
                self._steps.write(tensor, constants[tensor])
            self._graphs[kind, count] = made
        return self._graphs[kind, count]
