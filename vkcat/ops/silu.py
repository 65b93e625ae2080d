"""SiLU, or swish: y = x * sigmoid(x).

Source: Elfwing, Uchibe and Doya, Sigmoid-weighted linear units, arXiv 1702.03118.

| tensor | shape | dtype |
|---|---|---|
| x, y | (B, D) | float32 |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes, underflow
from vkcat.ops.gates import GATE_ERROR, sigmoid
from vkcat.tiling import Tiling


def reference(t: Arrays) -> dict[str, Array]:
    return {"y": t["x"] * sigmoid(t["x"])}


def bound(t: Arrays) -> dict[str, Array]:
    return {"y": (GATE_ERROR + UNIT_ROUNDOFF) * np.abs(t["x"]) + underflow(np.abs(t["x"]))}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(invocations=(sizes["D"], sizes["B"], 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    x = case.scale * rng.standard_normal((case.sizes["B"], case.sizes["D"]))
    return {"x": x.astype(np.float32)}


KERNEL = Kernel(
    name="silu",
    shapes={"x": "B D", "y": "B D"},
    outputs=("y",),
    reference=reference,
    bound=bound,
    why="16 u the gate",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: 2 * sizes["B"] * sizes["D"],
    cases=(
        Case({"B": 1, "D": 1}),
        Case({"B": 3, "D": 257}, seed=1),
        Case({"B": 63, "D": 3}, seed=2),
        Case({"B": 2, "D": 100}, seed=3, scale=1e4),
    ),
)
