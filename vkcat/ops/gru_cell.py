"""GRU cell with the reset after the product, one step, gates in the order r, z, n.

    r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)
    z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
    n = tanh(W_in x + b_in + r * (W_hn h + b_hn))
    h' = (1 - z) * n + z * h

Source: Cho et al., arXiv 1406.1078, in the variant of torch.nn.GRU, cuDNN and ONNX linear_before_reset = 1.

| tensor | shape | dtype |
|---|---|---|
| x | (B, I) | float32 |
| h, h_next | (B, H) | float32 |
| w_ih | (3H, I) | float32 |
| w_hh | (3H, H) | float32 |
| b_ih, b_hh | (3H) | float32 |
| mode | (B) | uint32: 0 hold (h' = h), 1 step, 2 restart (a step from h = 0) |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes, dot_error, products
from vkcat.ops.gates import GATE_ERROR, HOLD, RESTART, draw_modes, sigmoid
from vkcat.tiling import Tiling

UNIT_OPERATIONS = 11
"""Of a unit's gates and update: r and z two each, n three, the update four."""


def started(h: Array, mode: Array) -> Array:
    """The state a step begins from: zero where the stream restarts, whatever h held there."""
    return np.where((mode == RESTART)[:, None], 0.0, h)


def reference(t: Arrays) -> dict[str, Array]:
    h = started(t["h"], t["mode"])
    after = next_state(t["x"] @ t["w_ih"].T + t["b_ih"], h @ t["w_hh"].T + t["b_hh"], h)
    return {"h_next": np.where((t["mode"] == HOLD)[:, None], t["h"], after)}


def next_state(from_input: Array, from_state: Array, h: Array) -> Array:
    """h' (B, H) from what the input and the state h give of r, z and n, each (B, 3H) with its bias."""
    (i_r, i_z, i_n), (h_r, h_z, h_n) = (np.split(part, 3, axis=1) for part in (from_input, from_state))
    z = sigmoid(i_z + h_z)
    n = np.tanh(i_n + sigmoid(i_r + h_r) * h_n)
    return np.asarray((1 - z) * n + z * h)


def preactivation_errors(t: Arrays, h: Array) -> tuple[Array, Array]:
    """Bounds on the float32 errors of the input and of the recurrent products, each (B, 3H), biases included."""
    x_part = np.abs(t["x"]) @ np.abs(t["w_ih"]).T + np.abs(t["b_ih"])
    h_part = np.abs(h) @ np.abs(t["w_hh"]).T + np.abs(t["b_hh"])
    return dot_error(t["x"].shape[1] + 3, x_part, t), dot_error(h.shape[1] + 3, h_part, t)


def moved(f: Callable[[Array], Array], at: Array, error: Array) -> Array:
    """How far a monotone function can move when its argument is wrong by `error`, plus its own GATE_ERROR."""
    here = f(at)
    return np.asarray(np.maximum(f(at + error) - here, here - f(at - error)) + GATE_ERROR)


def update_error(h: Array, n: Array, z: Array, n_error: Array, z_error: Array) -> Array:
    """Error of (1 - z) * n + z * h, four roundings included."""
    return np.asarray(
        np.abs(h - n) * z_error + (1 - z) * n_error + z_error * n_error + 4 * UNIT_ROUNDOFF * (1 + np.abs(h))
    )


def bound(t: Arrays) -> dict[str, Array]:
    return {"h_next": error(t, np.zeros_like(t["x"]))}


def error(t: Arrays, x_error: Array) -> Array:
    """The bound when x is wrong by up to `x_error` already."""
    h = started(t["h"], t["mode"])
    x_errors, h_errors = preactivation_errors(t, h)
    from_input, from_state = t["x"] @ t["w_ih"].T + t["b_ih"], h @ t["w_hh"].T + t["b_hh"]
    update = next_error(from_input, from_state, h, x_errors + x_error @ np.abs(t["w_ih"]).T, h_errors)
    return np.asarray(np.where((t["mode"] == HOLD)[:, None], 0.0, update))


def next_error(from_input: Array, from_state: Array, h: Array, input_error: Array, state_error: Array) -> Array:
    """The bound of `next_state`, by those of what it is given but h: through the gates, which are monotone."""
    (i_r, i_z, i_n), (h_r, h_z, h_n) = (np.split(part, 3, axis=1) for part in (from_input, from_state))
    (e_ir, e_iz, e_in), (e_hr, e_hz, e_hn) = (np.split(part, 3, axis=1) for part in (input_error, state_error))
    r, z = sigmoid(i_r + h_r), sigmoid(i_z + h_z)
    r_error = moved(sigmoid, i_r + h_r, e_ir + e_hr)
    z_error = moved(sigmoid, i_z + h_z, e_iz + e_hz)
    n_in = i_n + r * h_n
    e_n = e_in + (r + r_error) * e_hn + np.abs(h_n) * (r_error + 2 * UNIT_ROUNDOFF) + 2 * UNIT_ROUNDOFF * np.abs(n_in)
    return update_error(h, np.tanh(n_in), z, moved(np.tanh, n_in, e_n), z_error)


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch.of_products(sizes["H"], sizes["B"], tiling)


def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
    """Six products' rows with their biases, and the gates'."""
    B, I, H = (sizes[name] for name in "BIH")
    return B * H * (6 * (I + H) + 6 + UNIT_OPERATIONS)


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, I, H = (case.sizes[name] for name in "BIH")
    mode = draw_modes(rng, B)
    h = rng.uniform(-1, 1, (B, H)).astype(np.float32)
    # A restarted stream must not look at what it held.
    h[mode == RESTART] = np.nan
    width = math.sqrt(1 / H)
    return {
        "x": (case.scale * rng.standard_normal((B, I))).astype(np.float32),
        "h": h,
        "w_ih": rng.uniform(-1, 1, (3 * H, I)).astype(np.float32),
        "w_hh": rng.uniform(-2 * width, 2 * width, (3 * H, H)).astype(np.float32),
        "b_ih": rng.uniform(-1, 1, 3 * H).astype(np.float32),
        "b_hh": rng.uniform(-1, 1, 3 * H).astype(np.float32),
        "mode": mode,
    }


CASES = (
    Case({"B": 1, "I": 1, "H": 1}),
    Case({"B": 3, "I": 3, "H": 3}, seed=1),
    Case({"B": 1, "I": 256, "H": 256}, seed=2),
    Case({"B": 1, "I": 257, "H": 63}, seed=3),
    Case({"B": 2, "I": 63, "H": 100}, seed=4),
    Case({"B": 63, "I": 100, "H": 3}, seed=5),
    Case({"B": 5, "I": 1, "H": 257}, seed=6),
    Case({"B": 3, "I": 63, "H": 65}, seed=7, scale=1e4),
)

KERNEL = Kernel(
    name="gru_cell",
    shapes={
        "x": "B I",
        "h": "B H",
        "w_ih": "3H I",
        "w_hh": "3H H",
        "b_ih": "3H",
        "b_hh": "3H",
        "mode": "B",
        "h_next": "B H",
    },
    outputs=("h_next",),
    reference=reference,
    bound=bound,
    why="the products' rounding through monotone gates, 16 u a gate",
    launch=launch,
    inputs=inputs,
    tiling=products("H", 3),
    operations=operations,
    packed=("w_ih", "w_hh"),
    cases=CASES,
)
