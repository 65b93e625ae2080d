"""Telemetry of activations: the size of a row's finite elements, and how many are not finite.

The root mean square is Inf where the sum of squares is beyond float32.

| tensor | shape | dtype |
|---|---|---|
| x | (B, D) | float32 |
| rms, greatest | (B) | float32: root mean square and greatest magnitude of the finite elements; 0 without any |
| nan_count, inf_count | (B) | uint32 |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes, dot_error
from vkcat.ops.squares import sum_of_squares
from vkcat.tiling import Tiling


def reference(t: Arrays) -> dict[str, Array]:
    finite = np.isfinite(t["x"])
    values = np.where(finite, t["x"], 0.0)
    return {
        "rms": np.sqrt(sum_of_squares(values, 1)[:, 0] / np.maximum(finite.sum(axis=1), 1)),
        "greatest": np.abs(values).max(axis=1),
        "nan_count": np.isnan(t["x"]).sum(axis=1).astype(np.uint32),
        "inf_count": np.isinf(t["x"]).sum(axis=1).astype(np.uint32),
    }


def bound(t: Arrays) -> dict[str, Array]:
    """The sum's relative error counts half through the root; Vulkan allows that 3 and a division 2.5 units."""
    relative = dot_error(t["x"].shape[1] + 2, np.ones(1)) / 2 + 8 * UNIT_ROUNDOFF
    none = np.zeros(len(t["x"]))
    return {"rms": relative * reference(t)["rms"], "greatest": none, "nan_count": none, "inf_count": none}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(workgroups=(sizes["B"], 1, 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    """Plain rows first, then some with NaN and Inf, the last of nothing else."""
    x = (case.scale * rng.standard_normal((case.sizes["B"], case.sizes["D"]))).astype(np.float32)
    for b in range(1, len(x)):
        x[b, rng.random(x.shape[1]) < 0.3] = np.nan
        x[b, rng.random(x.shape[1]) < 0.2] = np.inf
        x[b, rng.random(x.shape[1]) < 0.2] = -np.inf
    if len(x) > 1:
        x[-1] = np.nan
    return {"x": x}


KERNEL = Kernel(
    name="activation_stats",
    shapes={"x": "B D", "rms": "B", "greatest": "B", "nan_count": "B", "inf_count": "B"},
    outputs=("rms", "greatest", "nan_count", "inf_count"),
    reference=reference,
    bound=bound,
    why="half of min(n, 8 sqrt n) u for the sum of squares, 8 u for the rest; counts are exact",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: sizes["B"] * (3 * sizes["D"] + 2),
    cases=(
        Case({"B": 1, "D": 1}),
        Case({"B": 3, "D": 63}, seed=1),
        Case({"B": 63, "D": 3}, seed=2),
        Case({"B": 4, "D": 257}, seed=3, scale=100),
        Case({"B": 100, "D": 65}, seed=4),
    ),
)
