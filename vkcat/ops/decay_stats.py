"""Telemetry of a delta memory: the least, mean and greatest share exp g that its channels keep in a step.

g is `vkcat.ops.delta_memory`'s.

| tensor | shape | dtype |
|---|---|---|
| z | (B, R), R = N K | float32 |
| a | (N) | float32 |
| least, mean, greatest | (B) | float32, within 0 and 1 |

`bounded` is an attribute.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes, dot_error
from vkcat.ops.delta_memory import decay_error, decay_operations, log_decay
from vkcat.tiling import Tiling


def _keep(t: Arrays) -> Array:
    return np.exp(log_decay(t)).reshape(len(t["z"]), -1)


def reference(t: Arrays) -> dict[str, Array]:
    keep = _keep(t)
    return {"least": keep.min(axis=1), "mean": keep.mean(axis=1), "greatest": keep.max(axis=1)}


def bound(t: Arrays) -> dict[str, Array]:
    """An extreme is off by at most the greatest error, the mean by the mean one and the sum's."""
    keep = _keep(t)
    error = decay_error(t).reshape(keep.shape) * keep
    mean = error.mean(axis=1) + dot_error(keep.shape[1] + 2, keep.mean(axis=1)) + 2 * UNIT_ROUNDOFF
    return {"least": error.max(axis=1), "mean": mean, "greatest": error.max(axis=1)}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` when the heads do not divide the channels."""
    if sizes["R"] % sizes["N"]:
        raise ShapeError(mismatch("decay_stats: z", f"a multiple of {sizes['N']} channels", sizes["R"]))
    return Launch(workgroups=(sizes["B"], 1, 1))


def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
    """A head's rate; the decay, its exp and three reductions of it; the mean's division."""
    B, R, N = (sizes[name] for name in "BRN")
    return B * (R * (4 + decay_operations(attributes)) + 1) + N


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    z = case.scale * rng.standard_normal((case.sizes["B"], case.sizes["R"]))
    return {"z": z.astype(np.float32), "a": rng.uniform(-1, 1, case.sizes["N"]).astype(np.float32)}


_PLAIN, _BOUNDED = {"bounded": 0.0}, {"bounded": 1.0}

KERNEL = Kernel(
    name="decay_stats",
    shapes={"z": "B R", "a": "N", "least": "B", "mean": "B", "greatest": "B"},
    outputs=("least", "mean", "greatest"),
    attributes=("bounded",),
    reference=reference,
    bound=bound,
    why="exp and log as Vulkan allows, and the sum's rounding",
    launch=launch,
    inputs=inputs,
    operations=operations,
    cases=(
        Case({"B": 1, "R": 1, "N": 1}, attributes=_PLAIN),
        Case({"B": 3, "R": 63, "N": 3}, seed=1, attributes=_PLAIN),
        Case({"B": 63, "R": 6, "N": 2}, seed=2, attributes=_BOUNDED),
        Case({"B": 2, "R": 257, "N": 1}, seed=3, attributes=_BOUNDED),
        Case({"B": 4, "R": 100, "N": 4}, seed=4, scale=30, attributes=_PLAIN),
    ),
)
