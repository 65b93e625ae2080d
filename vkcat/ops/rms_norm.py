"""RMSNorm: y = x / sqrt(mean(x^2) + eps) * gain, over the last axis.

Source: Zhang and Sennrich, Root Mean Square Layer Normalization, arXiv 1910.07467, equation 4; eps is explicit
everywhere, as torch.nn.RMSNorm's default depends on the dtype. As torch's in float32, y = 0 where the sum of squares is
beyond float32, that is for values from about 1e19 / sqrt(D) on.

| tensor | shape | dtype |
|---|---|---|
| x, y | (B, D) | float32 |
| gain | (D) | float32 |

`eps` is an attribute.
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes, dot_error, underflow
from vkcat.ops.squares import may_overflow, mean_square
from vkcat.tiling import Tiling, of_lanes


def _root(t: Arrays) -> Array:
    """sqrt(mean(x^2) + eps) of each row, (B, 1)."""
    return np.asarray(np.sqrt(mean_square(t["x"], 1) + t["eps"]))


def reference(t: Arrays) -> dict[str, Array]:
    return {"y": t["x"] / _root(t) * t["gain"]}


def bound(t: Arrays) -> dict[str, Array]:
    """The sum's relative error counts half through the root; the rest is sqrt, division and two products.

    Vulkan allows a square root 3 and a division 2.5 units in the last place.
    """
    relative = dot_error(t["x"].shape[1] + 2, np.ones(1)) / 2 + 10 * UNIT_ROUNDOFF
    y = np.abs(reference(t)["y"])
    error = relative * y + underflow(y, 1 + np.abs(t["gain"]))
    # Of a row whose squares nearly overflow, the norm or zeros.
    normed = np.abs(t["x"] * t["gain"]) / np.sqrt(np.mean(t["x"] ** 2, axis=1, keepdims=True) + t["eps"])
    return {"y": np.where(may_overflow(t["x"], 1, 2 * relative), 2 * normed, error)}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(workgroups=(sizes["B"], 1, 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, D = case.sizes["B"], case.sizes["D"]
    x = (case.scale * rng.standard_normal((B, D))).astype(np.float32)
    # A row of zeros is where eps alone stands below the root.
    x[B // 2] = x[B // 2] if B < 3 else 0
    return {"x": x, "gain": rng.standard_normal(D).astype(np.float32)}


KERNEL = Kernel(
    name="rms_norm",
    shapes={"x": "B D", "gain": "D", "y": "B D"},
    outputs=("y",),
    reference=reference,
    bound=bound,
    why="half of min(n, 8 sqrt n) u for the sum of squares, 10 u for the rest",
    launch=launch,
    tiling=of_lanes,
    inputs=inputs,
    operations=lambda sizes, attributes: sizes["B"] * (4 * sizes["D"] + 3),
    cases=(
        Case({"B": 1, "D": 1}, attributes={"eps": 1e-6}),
        Case({"B": 1, "D": 256}, seed=1, attributes={"eps": 1e-6}),
        Case({"B": 3, "D": 63}, seed=2, attributes={"eps": 1e-5}),
        Case({"B": 63, "D": 3}, seed=3, attributes={"eps": 1e-6}),
        Case({"B": 5, "D": 100}, seed=4, scale=1e-4, attributes={"eps": 1e-6}),
        Case({"B": 100, "D": 257}, seed=5, attributes={"eps": 0.1}),
        Case({"B": 2, "D": 4096}, seed=6, scale=300, attributes={"eps": 1e-6}),
    ),
    attributes=("eps",),
)
