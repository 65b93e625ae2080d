"""First half of a GRU step with the reset before the product: the gates r and z, and r * h.

    r = sigmoid(W_ir x + b_ir + W_hr h + b_hr)
    z = sigmoid(W_iz x + b_iz + W_hz h + b_hz)
    rh = r * h

Source: Cho et al., arXiv 1406.1078, equations 5 and 6; ONNX GRU with linear_before_reset = 0. `gru_candidate` is the
other half. Shapes as in `gru_cell`; z and rh are (B, H). Only the first 2H rows of the weights are read.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Kernel, Launch, Sizes, underflow
from vkcat.ops import gru_cell
from vkcat.ops.gates import sigmoid
from vkcat.ops.gru_cell import moved, started
from vkcat.tiling import Tiling


def reference(t: Arrays) -> dict[str, Array]:
    h = started(t["h"], t["mode"])
    i_r, i_z, _ = np.split(t["x"] @ t["w_ih"].T + t["b_ih"], 3, axis=1)
    h_r, h_z, _ = np.split(h @ t["w_hh"].T + t["b_hh"], 3, axis=1)
    return {"z": sigmoid(i_z + h_z), "rh": sigmoid(i_r + h_r) * h}


def bound(t: Arrays) -> dict[str, Array]:
    h = started(t["h"], t["mode"])
    at = t["x"] @ t["w_ih"].T + t["b_ih"] + h @ t["w_hh"].T + t["b_hh"]
    e_r, e_z, _ = np.split(moved(sigmoid, at, np.sum(gru_cell.preactivation_errors(t, h), axis=0)), 3, axis=1)
    return {"z": e_z, "rh": (e_r + UNIT_ROUNDOFF) * np.abs(h) + underflow(np.abs(h))}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(invocations=(sizes["H"], sizes["B"], 1))


def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
    """Four products' rows with their biases; z two, r * h three."""
    B, I, H = (sizes[name] for name in "BIH")
    return B * H * (4 * (I + H) + 4 + 5)


KERNEL = Kernel(
    name="gru_gates",
    shapes={
        "x": "B I",
        "h": "B H",
        "w_ih": "3H I",
        "w_hh": "3H H",
        "b_ih": "3H",
        "b_hh": "3H",
        "mode": "B",
        "z": "B H",
        "rh": "B H",
    },
    outputs=("z", "rh"),
    reference=reference,
    bound=bound,
    why="the products' rounding through monotone gates, 16 u a gate",
    launch=launch,
    inputs=gru_cell.inputs,
    operations=operations,
    packed=("w_ih", "w_hh"),
    cases=gru_cell.CASES,
)
