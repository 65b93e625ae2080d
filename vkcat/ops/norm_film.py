"""RMSNorm under a modulation whose scale and shift come from a context: a fused op.

    y = rms_norm(x) * (1 + gamma) + beta,  (gamma, beta) = W c + bias

| tensor | shape | dtype |
|---|---|---|
| x, y | (B, D) | float32 |
| gain | (D) | float32 |
| c | (B, K) | float32 |
| w | (2D, K): rows of gamma, then of beta | float32 |
| bias | (2D) | float32 |

`eps` is an attribute.
"""

from __future__ import annotations

import numpy as np

from vkcat.composed import composed, composed_operations, run_part
from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Part, Sizes, products
from vkcat.ops import linear, modulation, rms_norm
from vkcat.tiling import Tiling

PARTS = (
    Part(rms_norm.KERNEL, {"y": "normed"}),
    Part(linear.KERNEL, {"x": "c", "y": "film"}),
    Part(modulation.KERNEL, {"x": "normed"}),
)


def bound(t: Arrays) -> dict[str, Array]:
    """The three parts' errors, each through those after it."""
    x, x_error = run_part(PARTS[0], t)["normed"], rms_norm.bound(t)["y"]
    film, film_error = run_part(PARTS[1], t)["film"], linear.bound({**t, "x": t["c"]})["y"]
    gamma, _ = np.split(np.abs(film), 2, axis=1)
    gamma_error, beta_error = np.split(film_error, 2, axis=1)
    wrong = {"x": np.abs(x) + x_error, "film": np.abs(film) + film_error}
    carried = x_error * (1 + gamma) + (np.abs(x) + x_error) * gamma_error + beta_error
    return {"y": modulation.bound(wrong)["y"] + carried}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch.of_products(sizes["D"], sizes["B"], tiling)


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, D, K = (case.sizes[name] for name in "BDK")
    return {
        **rms_norm.inputs(rng, case),
        "c": rng.standard_normal((B, K)).astype(np.float32),
        "w": (rng.standard_normal((2 * D, K)) / np.sqrt(K)).astype(np.float32),
        "bias": rng.standard_normal(2 * D).astype(np.float32),
    }


SHAPES = {"x": "B D", "gain": "D", "c": "B K", "w": "2D K", "bias": "2D", "y": "B D"}

KERNEL = Kernel(
    name="norm_film",
    shapes=SHAPES,
    outputs=("y",),
    reference=composed(PARTS, ("y",)),
    bound=bound,
    why="its parts', each through those after it",
    launch=launch,
    inputs=inputs,
    operations=composed_operations(PARTS, SHAPES),
    attributes=("eps",),
    tiling=products("D", 2),
    packed=("w",),
    parts=PARTS,
    cases=(
        Case({"B": 1, "D": 1, "K": 1}, attributes={"eps": 1e-6}),
        Case({"B": 1, "D": 256, "K": 257}, seed=1, attributes={"eps": 1e-6}),
        Case({"B": 3, "D": 63, "K": 100}, seed=2, attributes={"eps": 0.1}),
        Case({"B": 63, "D": 3, "K": 5}, seed=3, attributes={"eps": 1e-6}),
        Case({"B": 17, "D": 101, "K": 64}, seed=4, scale=1e-4, attributes={"eps": 1e-6}),
    ),
)
