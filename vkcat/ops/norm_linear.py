"""RMSNorm and a linear op on what it gives: y = W rms_norm(x) + bias. A fused op.

| tensor | shape | dtype |
|---|---|---|
| x | (B, K) | float32 |
| gain | (K) | float32 |
| w | (N, K) | float32 |
| bias | (N) | float32 |
| y | (B, N) | float32 |

`eps` is an attribute.
"""

from __future__ import annotations

import numpy as np

from vkcat.composed import composed, composed_operations, run_part
from vkcat.kernel import Array, Arrays, Case, Kernel, Part
from vkcat.ops import linear, rms_norm

PARTS = (Part(rms_norm.KERNEL, {"y": "normed"}), Part(linear.KERNEL, {"x": "normed"}))


def bound(t: Arrays) -> dict[str, Array]:
    """The product's of the normed x, and what the norm's error makes of it."""
    x = run_part(PARTS[0], t)["normed"]
    carried = rms_norm.bound(t)["y"] @ np.abs(t["w"]).T
    return {"y": linear.bound({**t, "x": x})["y"] + carried}


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, N, K = (case.sizes[name] for name in "BNK")
    return {
        **rms_norm.inputs(rng, Case({"B": B, "D": K}, scale=case.scale)),
        "w": rng.standard_normal((N, K)).astype(np.float32),
        "bias": rng.standard_normal(N).astype(np.float32),
    }


SHAPES = {"x": "B K", "gain": "K", "w": "N K", "bias": "N", "y": "B N"}

KERNEL = Kernel(
    name="norm_linear",
    shapes=SHAPES,
    outputs=("y",),
    reference=composed(PARTS, ("y",)),
    bound=bound,
    why="linear's, and the product of rms_norm's",
    launch=linear.launch,
    inputs=inputs,
    operations=composed_operations(PARTS, SHAPES),
    attributes=("eps",),
    tiling=linear.KERNEL.tiling,
    packed=("w",),
    parts=PARTS,
    cases=(
        Case({"B": 1, "N": 1, "K": 1}, attributes={"eps": 1e-6}),
        Case({"B": 1, "N": 257, "K": 256}, seed=1, attributes={"eps": 1e-6}),
        Case({"B": 3, "N": 74, "K": 63}, seed=2, attributes={"eps": 0.1}),
        Case({"B": 63, "N": 5, "K": 3}, seed=3, attributes={"eps": 1e-6}),
        Case({"B": 17, "N": 100, "K": 100}, seed=4, scale=1e-4, attributes={"eps": 1e-6}),
        Case({"B": 2, "N": 3, "K": 4096}, seed=5, scale=300, attributes={"eps": 1e-6}),
    ),
)
