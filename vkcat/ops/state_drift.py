"""Telemetry of a state: drift = sqrt(mean (after - before)^2), the size of its change in a step.

| tensor | shape | dtype |
|---|---|---|
| before, after | (B, H) | float32 |
| mode | (B) | uint32: 0 hold (no drift), 1 step, 2 restart (before is zero, whatever it holds) |
| drift | (B) | float32 |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes, dot_error
from vkcat.ops.gates import HOLD, RESTART, draw_modes
from vkcat.ops.squares import mean_square
from vkcat.tiling import Tiling


def _parts(t: Arrays) -> tuple[Array, Array]:
    """before and after, as the mode has them."""
    mode = t["mode"][:, None]
    before = np.where(mode == RESTART, 0.0, t["before"])
    return np.where(mode == HOLD, 0.0, before), np.where(mode == HOLD, 0.0, t["after"])


def reference(t: Arrays) -> dict[str, Array]:
    before, after = _parts(t)
    return {"drift": np.sqrt(mean_square(after - before, 1)[:, 0])}


def bound(t: Arrays) -> dict[str, Array]:
    """The differences' roundings are relative; half of the sum's error goes through the root."""
    relative = float(dot_error(t["before"].shape[1] + 2, np.ones(1))[0]) / 2 + 9 * UNIT_ROUNDOFF
    return {"drift": relative * reference(t)["drift"]}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(workgroups=(sizes["B"], 1, 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    shape = case.sizes["B"], case.sizes["H"]
    mode = draw_modes(rng, shape[0])
    before = rng.uniform(-1, 1, shape).astype(np.float32)
    before[mode == RESTART] = np.nan
    return {"before": before, "after": rng.uniform(-1, 1, shape).astype(np.float32), "mode": mode}


KERNEL = Kernel(
    name="state_drift",
    shapes={"before": "B H", "after": "B H", "mode": "B", "drift": "B"},
    outputs=("drift",),
    reference=reference,
    bound=bound,
    why="half of min(n, 8 sqrt n) u for the sum of squares, 9 u for the rest",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: sizes["B"] * (3 * sizes["H"] + 2),
    cases=(
        Case({"B": 1, "H": 1}),
        Case({"B": 3, "H": 63}, seed=1),
        Case({"B": 63, "H": 3}, seed=2),
        Case({"B": 5, "H": 257}, seed=3),
        Case({"B": 100, "H": 65}, seed=4),
    ),
)
