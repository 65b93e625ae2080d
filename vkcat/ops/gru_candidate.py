"""Second half of a GRU step with the reset before the product: the candidate n and the update.

    n = tanh(W_in x + b_in + W_hn (r * h) + b_hn)
    h' = (1 - z) * n + z * h

Source: Cho et al., arXiv 1406.1078, equations 7 and 8; ONNX GRU with linear_before_reset = 0. z and rh = r * h come
from `gru_gates`. Shapes as in `gru_cell`; only the last H rows of the weights are read.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.ops import gru_cell
from vkcat.ops.gates import HOLD, RESTART
from vkcat.ops.gru_cell import moved, started, update_error
from vkcat.tiling import Tiling


def _argument(t: Arrays) -> Array:
    """What the tanh of the candidate is taken of."""
    rows = slice(-t["h"].shape[1], None)
    return np.asarray(
        t["x"] @ t["w_ih"][rows].T + t["b_ih"][rows] + t["rh"] @ t["w_hh"][rows].T + t["b_hh"][rows],
    )


def reference(t: Arrays) -> dict[str, Array]:
    h = started(t["h"], t["mode"])
    n = np.tanh(_argument(t))
    z = t["z"]
    return {"h_next": np.where((t["mode"] == HOLD)[:, None], t["h"], (1 - z) * n + z * h)}


def bound(t: Arrays) -> dict[str, Array]:
    h = started(t["h"], t["mode"])
    at = _argument(t)
    e_n = np.split(np.sum(gru_cell.preactivation_errors(t, t["rh"]), axis=0), 3, axis=1)[2]
    error = update_error(h, np.tanh(at), t["z"], moved(np.tanh, at, e_n), np.zeros_like(at))
    return {"h_next": np.where((t["mode"] == HOLD)[:, None], 0.0, error)}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(invocations=(sizes["H"], sizes["B"], 1))


def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
    """Two products' rows, three sums and a tanh, the update four."""
    B, I, H = (sizes[name] for name in "BIH")
    return B * H * (2 * (I + H) + 4 + 4)


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    t = gru_cell.inputs(rng, case)
    shape = t["h"].shape
    z = rng.uniform(0, 1, shape).astype(np.float32)
    rh = rng.uniform(-1, 1, shape).astype(np.float32)
    rh[t["mode"] == RESTART] = 0
    return {"x": t["x"], "h": t["h"], "z": z, "rh": rh, **{k: t[k] for k in ("w_ih", "w_hh", "b_ih", "b_hh", "mode")}}


KERNEL = Kernel(
    name="gru_candidate",
    shapes={
        "x": "B I",
        "h": "B H",
        "z": "B H",
        "rh": "B H",
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
    why="the products' rounding through a monotone gate, 16 u a gate",
    launch=launch,
    inputs=inputs,
    operations=operations,
    packed=("w_ih", "w_hh"),
    cases=gru_cell.CASES,
)
