"""RMSNorm and the gated hidden layer of an MLP on what it gives. A fused op.

| tensor | shape | dtype |
|---|---|---|
| x | (B, D) | float32 |
| gain | (D) | float32 |
| w_in | (2M, D): gate rows, then up rows | float32 |
| hidden | (B, M) | float32 |

`eps` and `situ` are attributes.
"""

from __future__ import annotations

import numpy as np

from vkcat.composed import composed, composed_operations, run_part
from vkcat.kernel import Array, Arrays, Case, Kernel, Part
from vkcat.ops import mlp, rms_norm

PARTS = (Part(rms_norm.KERNEL, {"y": "normed"}), Part(mlp.KERNEL, {"x": "normed"}))


def bound(t: Arrays) -> dict[str, Array]:
    x = run_part(PARTS[0], t)["normed"]
    return {"hidden": mlp.error({**t, "x": x}, rms_norm.bound(t)["y"])}


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    return {**mlp.inputs(rng, case), **rms_norm.inputs(rng, case)}


def _numbers(situ: float) -> dict[str, float]:
    return {"eps": 1e-6, "situ": situ}


SHAPES = {"x": "B D", "gain": "D", "w_in": "2M D", "hidden": "B M"}

KERNEL = Kernel(
    name="norm_mlp",
    shapes=SHAPES,
    outputs=("hidden",),
    reference=composed(PARTS, ("hidden",)),
    bound=bound,
    why="mlp's, and what the products make of rms_norm's",
    launch=mlp.launch,
    inputs=inputs,
    operations=composed_operations(PARTS, SHAPES),
    attributes=("eps", "situ"),
    tiling=mlp.KERNEL.tiling,
    packed=("w_in",),
    parts=PARTS,
    cases=(
        Case({"B": 1, "D": 1, "M": 1}, attributes=_numbers(0)),
        Case({"B": 1, "D": 256, "M": 100}, seed=1, attributes=_numbers(0)),
        Case({"B": 3, "D": 63, "M": 257}, seed=2, attributes=_numbers(1)),
        Case({"B": 63, "D": 3, "M": 5}, seed=3, attributes=_numbers(0)),
        Case({"B": 5, "D": 65, "M": 9}, seed=4, scale=1e-4, attributes=_numbers(1)),
    ),
)
