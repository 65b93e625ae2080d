"""Step t of a GRU over T steps of B streams, reset after the product, all that its inputs give being there already.

    x = W_i x_t + b_i        of every step at once, by `linear`
    h' as in `gru_cell`

| tensor | shape | dtype |
|---|---|---|
| x | (R, 3H), R = T B; row t B + b is stream b's step t | float32 |
| h, h_next | (B, H) | float32 |
| w_hh | (3H, H) | float32 |
| b_hh | (3H) | float32 |
| mode | (B) | uint32: 0 hold, 1 step, 2 restart (the first step is from h = 0) |
| lengths | (B) | uint32: how many of the steps are the stream's own; past them h stays |
| y | (R, H), row t B + b becomes h_next of b; updated in place | float32 |

Attribute t is the step's number, below 2^24.
"""

from __future__ import annotations

import math

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes, dot_error, products
from vkcat.ops.gates import RESTART, draw_modes
from vkcat.ops.gru_cell import UNIT_OPERATIONS, next_error, next_state
from vkcat.ops.rows import check_rows, draw_lengths, is_read
from vkcat.tiling import Tiling


def begun(t: Arrays, step: int) -> Array:
    """The state (B, H) that a step begins from."""
    fresh = is_read(t, step) & (t["mode"] == RESTART)[:, None] & (step == 0)
    return np.where(fresh, 0.0, t["h"])


def advanced(t: Arrays, step: int) -> Array:
    """The state (B, H) after one step."""
    h, B = begun(t, step), len(t["h"])
    after = next_state(t["x"][step * B : (step + 1) * B], h @ t["w_hh"].T + t["b_hh"], h)
    return np.where(is_read(t, step), after, t["h"])


def advanced_error(t: Arrays, step: int, h_error: Array) -> Array:
    """The bound of `advanced` when h (B, H) is wrong by up to `h_error` already: that goes through both of its uses."""
    h, B = begun(t, step), len(t["h"])
    x = t["x"][step * B : (step + 1) * B]
    magnitude = np.abs(h) @ np.abs(t["w_hh"]).T + np.abs(t["b_hh"])
    state_error = dot_error(h.shape[1] + 3, magnitude, t) + h_error @ np.abs(t["w_hh"]).T
    from_state = h @ t["w_hh"].T + t["b_hh"]
    # The sum of both parts is rounded once more.
    input_error = 2.0**-23 * (np.abs(x) + np.abs(from_state))
    error = next_error(x, from_state, h, input_error, state_error) + h_error
    return np.where(is_read(t, step), error, h_error)


def reference(t: Arrays) -> dict[str, Array]:
    step, B = int(t["t"]), len(t["h"])
    y = t["y"].copy()
    y[step * B : (step + 1) * B] = after = advanced(t, step)
    return {"y": y, "h_next": after}


def bound(t: Arrays) -> dict[str, Array]:
    step, B = int(t["t"]), len(t["h"])
    error = advanced_error(t, step, np.zeros(t["h"].shape))
    y = np.zeros(t["y"].shape)
    y[step * B : (step + 1) * B] = error
    return {"y": y, "h_next": error}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    check_rows("gru_recurrence", sizes)
    return Launch.of_products(sizes["H"], sizes["B"], tiling)


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    R, B, H = (case.sizes[name] for name in "RBH")
    mode, lengths = draw_modes(rng, B), draw_lengths(rng, B, R // B)
    h = rng.uniform(-1, 1, (B, H)).astype(np.float32)
    if not case.attributes.get("t", 0):
        # A restarted stream must not look at what it held.
        h[(mode == RESTART) & (lengths > 0)] = np.nan
    width = math.sqrt(1 / H)
    return {
        "x": (case.scale * rng.standard_normal((R, 3 * H))).astype(np.float32),
        "h": h,
        "w_hh": rng.uniform(-2 * width, 2 * width, (3 * H, H)).astype(np.float32),
        "b_hh": rng.uniform(-1, 1, 3 * H).astype(np.float32),
        "mode": mode,
        "lengths": lengths,
        "y": rng.standard_normal((R, H)).astype(np.float32),
    }


SHAPES = {
    "x": "R 3H",
    "h": "B H",
    "w_hh": "3H H",
    "b_hh": "3H",
    "mode": "B",
    "lengths": "B",
    "y": "R H",
    "h_next": "B H",
}

KERNEL = Kernel(
    name="gru_recurrence",
    shapes=SHAPES,
    outputs=("h_next",),
    updates=("y",),
    attributes=("t",),
    reference=reference,
    bound=bound,
    why="the product's rounding through monotone gates, 16 u a gate",
    launch=launch,
    inputs=inputs,
    tiling=products("H", 3),
    operations=lambda sizes, attributes: sizes["B"] * sizes["H"] * (6 * sizes["H"] + 3 + UNIT_OPERATIONS),
    moved=lambda sizes, attributes: {"x": 3 * sizes["B"] * sizes["H"], "y": sizes["B"] * sizes["H"]},
    packed=("w_hh",),
    cases=(
        Case({"R": 1, "B": 1, "H": 1}, attributes={"t": 0}),
        Case({"R": 21, "B": 3, "H": 63}, seed=1, attributes={"t": 0}),
        Case({"R": 8, "B": 1, "H": 256}, seed=2, attributes={"t": 7}),
        Case({"R": 15, "B": 5, "H": 65}, seed=3, attributes={"t": 1}),
        Case({"R": 126, "B": 63, "H": 3}, seed=4, attributes={"t": 1}),
        Case({"R": 6, "B": 2, "H": 257}, seed=5, attributes={"t": 2}, scale=1e4),
        Case({"R": 2, "B": 1, "H": 100}, seed=6, attributes={"t": 1}),
    ),
)
