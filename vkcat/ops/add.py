"""Sum of two rows: y = a + b. The residual of a depth policy, and shared experts beside routed ones.

| tensor | shape | dtype |
|---|---|---|
| a, b, y | (B, D) | float32 |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.tiling import Tiling


def reference(t: Arrays) -> dict[str, Array]:
    return {"y": t["a"] + t["b"]}


def bound(t: Arrays) -> dict[str, Array]:
    return {"y": UNIT_ROUNDOFF * np.abs(t["a"] + t["b"])}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(invocations=(sizes["D"], sizes["B"], 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    shape = (case.sizes["B"], case.sizes["D"])
    return {name: rng.standard_normal(shape).astype(np.float32) for name in "ab"}


KERNEL = Kernel(
    name="add",
    shapes={"a": "B D", "b": "B D", "y": "B D"},
    outputs=("y",),
    reference=reference,
    bound=bound,
    why="one rounding",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: sizes["B"] * sizes["D"],
    cases=(
        Case({"B": 1, "D": 1}),
        Case({"B": 3, "D": 257}, seed=1),
        Case({"B": 63, "D": 3}, seed=2),
        Case({"B": 2, "D": 100}, seed=3),
    ),
)
