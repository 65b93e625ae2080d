"""Short causal depthwise convolution of one step, with swish: y = swish(sum_j w[c, j] x[t - M + j, c]), no bias.

Source: Kimi Linear, arXiv 2510.26692, equation 10 (a convolution of length 4); as torch.nn.Conv1d with groups = C, the
last tap on this step.

| tensor | shape | dtype |
|---|---|---|
| x, y | (B, C) | float32 |
| w | (C, L) | float32 |
| history, history_next | (B, M, C), M = L - 1: the inputs before this one, oldest first | float32 |
| mode | (B) | uint32: 0 hold (history stays), 1 step, 2 restart (history is zero) |
"""

from __future__ import annotations

import numpy as np

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes, dot_error, underflow
from vkcat.ops.gates import GATE_ERROR, HOLD, RESTART, draw_modes, sigmoid
from vkcat.tiling import Tiling


def _window(t: Arrays) -> Array:
    """(B, L, C): what lies under the taps."""
    past = np.where((t["mode"] == RESTART)[:, None, None], 0.0, t["history"])
    return np.concatenate([past, t["x"][:, None]], axis=1)


def reference(t: Arrays) -> dict[str, Array]:
    window = _window(t)
    total = np.einsum("blc,cl->bc", window, t["w"])
    held = (t["mode"] == HOLD)[:, None, None]
    return {"y": total * sigmoid(total), "history_next": np.where(held, t["history"], window[:, 1:])}


def bound(t: Arrays) -> dict[str, Array]:
    """swish has a slope of at most 1.1; its gate adds its own error."""
    window = _window(t)
    total = np.abs(np.einsum("blc,cl->bc", window, t["w"]))
    error = dot_error(t["w"].shape[1], np.einsum("blc,cl->bc", np.abs(window), np.abs(t["w"])))
    return {
        "y": 1.1 * error + (GATE_ERROR + UNIT_ROUNDOFF) * total + underflow(total),
        "history_next": np.zeros(t["history"].shape),
    }


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` when the history is not one shorter than the taps."""
    if sizes["L"] != sizes["M"] + 1:
        raise ShapeError(mismatch("short_conv: history", f"(B, {sizes['L'] - 1}, C) for {sizes['L']} taps", sizes["M"]))
    return Launch(invocations=(sizes["C"], sizes["B"], 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, C, L, M = (case.sizes[name] for name in "BCLM")
    mode = draw_modes(rng, B)
    history = rng.standard_normal((B, M, C)).astype(np.float32)
    history[mode == RESTART] = np.nan
    return {
        "x": (case.scale * rng.standard_normal((B, C))).astype(np.float32),
        "w": rng.standard_normal((C, L)).astype(np.float32),
        "history": history,
        "mode": mode,
    }


KERNEL = Kernel(
    name="short_conv",
    shapes={"x": "B C", "w": "C L", "history": "B M C", "mode": "B", "y": "B C", "history_next": "B M C"},
    outputs=("y", "history_next"),
    reference=reference,
    bound=bound,
    why="the sum's rounding through swish, 16 u the gate",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: sizes["B"] * sizes["C"] * (2 * sizes["L"] + 2),
    cases=(
        Case({"B": 1, "C": 1, "L": 4, "M": 3}),
        Case({"B": 3, "C": 63, "L": 4, "M": 3}, seed=1),
        Case({"B": 100, "C": 3, "L": 4, "M": 3}, seed=2),
        Case({"B": 2, "C": 257, "L": 2, "M": 1}, seed=3),
        Case({"B": 5, "C": 65, "L": 4, "M": 3}, seed=4, scale=1e4),
    ),
)
