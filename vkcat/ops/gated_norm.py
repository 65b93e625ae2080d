"""Output gate of the delta memory: y = sigmoid(gate) * rmsnorm(x), each head normed by itself.

Source: Kimi Linear, arXiv 2510.26692, equation 10.

| tensor | shape | dtype |
|---|---|---|
| x, gate, y | (B, P), P = N V | float32 |
| gain | (V) | float32 |

`eps` is an attribute.
"""

from __future__ import annotations

import numpy as np

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes, underflow
from vkcat.ops import rms_norm
from vkcat.ops.gates import GATE_ERROR, sigmoid
from vkcat.tiling import Tiling, of_lanes


def _by_head(t: Arrays) -> Arrays:
    """What rms_norm takes, a row a stream and head."""
    return {"x": t["x"].reshape(-1, len(t["gain"])), "gain": t["gain"], "eps": t["eps"]}


def reference(t: Arrays) -> dict[str, Array]:
    normed = rms_norm.reference(_by_head(t))["y"].reshape(t["x"].shape)
    return {"y": sigmoid(t["gate"]) * normed}


def bound(t: Arrays) -> dict[str, Array]:
    normed = np.abs(rms_norm.reference(_by_head(t))["y"]).reshape(t["x"].shape)
    error = rms_norm.bound(_by_head(t))["y"].reshape(t["x"].shape)
    return {"y": error + 2 * GATE_ERROR * normed + underflow(normed)}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` when the heads do not divide the width."""
    if sizes["P"] % sizes["V"]:
        raise ShapeError(mismatch("gated_norm: x", f"a multiple of {sizes['V']} channels", sizes["P"]))
    return Launch(workgroups=(sizes["B"], sizes["P"] // sizes["V"], 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, P, V = (case.sizes[name] for name in "BPV")
    return {
        "x": (case.scale * rng.standard_normal((B, P))).astype(np.float32),
        "gate": rng.standard_normal((B, P)).astype(np.float32),
        "gain": rng.standard_normal(V).astype(np.float32),
    }


KERNEL = Kernel(
    name="gated_norm",
    shapes={"x": "B P", "gate": "B P", "gain": "V", "y": "B P"},
    outputs=("y",),
    attributes=("eps",),
    reference=reference,
    bound=bound,
    why="rms_norm's, 16 u the gate",
    launch=launch,
    tiling=of_lanes,
    inputs=inputs,
    operations=lambda sizes, attributes: sizes["B"] * (6 * sizes["P"] + 3 * (sizes["P"] // sizes["V"])),
    cases=(
        Case({"B": 1, "P": 1, "V": 1}, attributes={"eps": 1e-6}),
        Case({"B": 3, "P": 63, "V": 9}, seed=1, attributes={"eps": 1e-6}),
        Case({"B": 100, "P": 6, "V": 3}, seed=2, attributes={"eps": 1e-5}),
        Case({"B": 2, "P": 257, "V": 257}, seed=3, attributes={"eps": 1e-6}),
        Case({"B": 2, "P": 200, "V": 100}, seed=4, scale=1e-3, attributes={"eps": 1e-6}),
    ),
)
