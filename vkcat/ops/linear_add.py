"""A linear op and the sum of what it gives with a row beside it: y = W x + bias, total = base + y. A fused op.

| tensor | shape | dtype |
|---|---|---|
| x | (B, K) | float32 |
| w | (N, K) | float32 |
| bias | (N) | float32 |
| base, y, total | (B, N) | float32 |
"""

from __future__ import annotations

import numpy as np

from vkcat.composed import composed, composed_operations
from vkcat.kernel import Array, Arrays, Case, Kernel, Part
from vkcat.ops import add, linear

PARTS = (Part(linear.KERNEL), Part(add.KERNEL, {"a": "base", "b": "y", "y": "total"}))


def bound(t: Arrays) -> dict[str, Array]:
    y, error = linear.reference(t)["y"], linear.bound(t)["y"]
    return {"y": error, "total": error + add.bound({"a": np.abs(t["base"]), "b": np.abs(y) + error})["y"]}


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, N = case.sizes["B"], case.sizes["N"]
    return {**linear.inputs(rng, case), "base": rng.standard_normal((B, N)).astype(np.float32)}


SHAPES = {"x": "B K", "w": "N K", "bias": "N", "base": "B N", "y": "B N", "total": "B N"}

KERNEL = Kernel(
    name="linear_add",
    shapes=SHAPES,
    outputs=("y", "total"),
    reference=composed(PARTS, ("y", "total")),
    bound=bound,
    why="linear's and one rounding",
    launch=linear.launch,
    inputs=inputs,
    operations=composed_operations(PARTS, SHAPES),
    tiling=linear.KERNEL.tiling,
    packed=("w",),
    parts=PARTS,
    cases=(
        Case({"B": 1, "N": 1, "K": 1}),
        Case({"B": 1, "N": 256, "K": 257}, seed=1),
        Case({"B": 3, "N": 63, "K": 100}, seed=2),
        Case({"B": 63, "N": 5, "K": 3}, seed=3),
        Case({"B": 17, "N": 65, "K": 63}, seed=4, scale=1e4),
    ),
)
