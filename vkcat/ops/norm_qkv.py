"""RMSNorm and attention's three products of what it gives: q, k, v = W_q n, W_k n, W_v n, n = rms_norm(x). A fused op.

| tensor | shape | dtype |
|---|---|---|
| x | (B, D) | float32 |
| gain | (D) | float32 |
| w_q | (Q, D) | float32 |
| w_k, w_v | (C, D) | float32 |
| q | (B, Q) | float32 |
| k, v | (B, C) | float32 |

`eps` is an attribute.
"""

from __future__ import annotations

import math

import numpy as np

from vkcat.composed import composed, composed_operations, run_part
from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Part, Sizes
from vkcat.ops import linear, rms_norm
from vkcat.tiling import Machine, Tiling, of_products

PARTS = (
    Part(rms_norm.KERNEL, {"y": "normed"}),
    *(Part(linear.KERNEL, {"x": "normed", "w": f"w_{name}", "y": name}, zeros=("bias",)) for name in "qkv"),
)


def bound(t: Arrays) -> dict[str, Array]:
    """The products' of the normed x, and what the norm's error makes of it."""
    x, x_error = run_part(PARTS[0], t)["normed"], rms_norm.bound(t)["y"]
    bounds = {}
    for name in "qkv":
        w = t[f"w_{name}"]
        product = linear.bound({**t, "x": x, "w": w, "bias": np.zeros(len(w))})["y"]
        bounds[name] = product + x_error @ np.abs(w).T
    return bounds


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    along = math.ceil(max(sizes["Q"], sizes["C"]) / tiling.rows) * tiling.split
    return Launch(invocations=(along, math.ceil(sizes["B"] / tiling.streams), 3))


def tiling(sizes: Sizes, machine: Machine) -> Tiling:
    return of_products(max(sizes["Q"], sizes["C"]), sizes["B"], 1, machine)


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, D, Q, C = (case.sizes[name] for name in "BDQC")
    rows = {"w_q": Q, "w_k": C, "w_v": C}
    return {
        **rms_norm.inputs(rng, Case({"B": B, "D": D}, scale=case.scale)),
        **{name: rng.standard_normal((count, D)).astype(np.float32) for name, count in rows.items()},
    }


SHAPES = {
    "x": "B D",
    "gain": "D",
    "w_q": "Q D",
    "w_k": "C D",
    "w_v": "C D",
    "q": "B Q",
    "k": "B C",
    "v": "B C",
}

KERNEL = Kernel(
    name="norm_qkv",
    shapes=SHAPES,
    outputs=("q", "k", "v"),
    reference=composed(PARTS, ("q", "k", "v")),
    bound=bound,
    why="linear's, and the products of rms_norm's",
    launch=launch,
    inputs=inputs,
    operations=composed_operations(PARTS, SHAPES),
    attributes=("eps",),
    tiling=tiling,
    packed=("w_q", "w_k", "w_v"),
    parts=PARTS,
    cases=(
        Case({"B": 1, "D": 1, "Q": 1, "C": 1}, attributes={"eps": 1e-6}),
        Case({"B": 5, "D": 63, "Q": 100, "C": 25}, seed=1, attributes={"eps": 1e-6}),
        Case({"B": 3, "D": 257, "Q": 3, "C": 65}, seed=2, attributes={"eps": 0.1}),
        Case({"B": 32, "D": 100, "Q": 64, "C": 64}, seed=3, scale=1e-4, attributes={"eps": 1e-6}),
    ),
)
