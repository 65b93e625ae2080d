"""GRU cases for torch, with weights both sides make from the same numbers. No vkcat and no torch in here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Case:
    """A torch.nn.GRU with its input: T steps, B sequences, I inputs, H hidden units, L layers."""

    steps: int
    batch: int
    inputs: int
    hidden: int
    layers: int
    both: bool
    lengths: bool = False
    h0: bool = True

    @property
    def name(self) -> str:
        marks = ("-both" if self.both else "") + ("-lengths" if self.lengths else "") + ("" if self.h0 else "-zero")
        return f"T{self.steps}-B{self.batch}-I{self.inputs}-H{self.hidden}-L{self.layers}{marks}"


CASES = (
    Case(1, 1, 1, 1, 1, both=False),
    Case(7, 3, 3, 1, 2, both=True),
    Case(5, 2, 100, 63, 1, both=False, h0=False),
    Case(9, 5, 63, 100, 2, both=False, lengths=True),
    Case(8, 4, 1, 257, 1, both=True, lengths=True),
    Case(6, 3, 257, 65, 3, both=True, lengths=True),
    Case(12, 1, 64, 64, 4, both=False),
    Case(5, 3, 300, 300, 1, both=True),
    Case(4, 2, 300, 128, 4, both=True, h0=False),
    Case(40, 2, 17, 96, 3, both=False, lengths=True),
)


@dataclass(frozen=True)
class Arrays:
    x: NDArray[np.float32]
    h0: NDArray[np.float32]
    lengths: NDArray[np.int64]
    w_ih: list[NDArray[np.float32]]
    w_hh: list[NDArray[np.float32]]
    b_ih: list[NDArray[np.float32]]
    b_hh: list[NDArray[np.float32]]


def arrays(case: Case) -> Arrays:
    """Numbers that depend on the case alone: RandomState's streams are frozen across NumPy's versions."""
    rng = np.random.RandomState(sum(ord(c) * (i + 1) for i, c in enumerate(case.name)))
    directions = 2 if case.both else 1
    bound = 1 / np.sqrt(case.hidden)

    def uniform(*shape: int) -> NDArray[np.float32]:
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    rows = 3 * case.hidden
    cells = [
        (uniform(rows, case.inputs if layer == 0 else directions * case.hidden), uniform(rows, case.hidden))
        for layer in range(case.layers)
        for _ in range(directions)
    ]
    biases = [(uniform(rows), uniform(rows)) for _ in cells]
    x = rng.uniform(-2, 2, (case.steps, case.batch, case.inputs)).astype(np.float32)
    h0 = rng.uniform(-1, 1, (len(cells), case.batch, case.hidden)).astype(np.float32)
    lengths = rng.randint(1, case.steps + 1, case.batch) if case.lengths else np.full(case.batch, case.steps)
    lengths[0] = case.steps
    return Arrays(
        x=x,
        h0=h0 if case.h0 else np.zeros_like(h0),
        lengths=lengths.astype(np.int64),
        w_ih=[w for w, _ in cells],
        w_hh=[w for _, w in cells],
        b_ih=[b for b, _ in biases],
        b_hh=[b for _, b in biases],
    )
