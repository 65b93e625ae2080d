"""The gated hidden layer of an MLP; a linear op brings it back to the stream's width.

    hidden = act(W_gate x) (W_up x)
    act(g) u = silu(g) u                                            `situ` = 0
             = [4 tanh(g / 4) sigmoid(g)] [25 tanh(u / 25)]         `situ` = 1

Sources: Shazeer, GLU Variants Improve Transformer, arXiv 2002.05202 (SwiGLU); the Kimi K3 report (SiTU).

| tensor | shape | dtype |
|---|---|---|
| x | (B, D) | float32 |
| w_in | (2M, D): gate rows, then up rows | float32 |
| hidden | (B, M) | float32 |
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes, dot_error, products
from vkcat.ops.gates import gated, gated_error, gated_operations
from vkcat.tiling import Tiling


def _products(t: Arrays) -> tuple[Array, Array]:
    gate, up = np.split(t["x"] @ t["w_in"].T, 2, axis=1)
    return gate, up


def reference(t: Arrays) -> dict[str, Array]:
    return {"hidden": gated(*_products(t), bool(t["situ"]))}


def bound(t: Arrays) -> dict[str, Array]:
    return {"hidden": error(t, np.zeros_like(t["x"]))}


def error(t: Arrays, x_error: Array) -> Array:
    """When x is wrong by up to `x_error` already."""
    errors = dot_error(t["x"].shape[1], np.abs(t["x"]) @ np.abs(t["w_in"]).T, t) + x_error @ np.abs(t["w_in"]).T
    gate_error, up_error = np.split(errors, 2, axis=1)
    return gated_error(*_products(t), gate_error, up_error, bool(t["situ"]))


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch.of_products(sizes["M"], sizes["B"], tiling)


def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
    """Two products' rows, and the gates."""
    B, D, M = (sizes[name] for name in "BDM")
    return B * M * (4 * D + gated_operations(attributes))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, D, M = (case.sizes[name] for name in "BDM")
    return {
        "x": (case.scale * rng.standard_normal((B, D))).astype(np.float32),
        "w_in": (rng.standard_normal((2 * M, D)) / np.sqrt(D)).astype(np.float32),
    }


_SILU, _SITU = {"situ": 0.0}, {"situ": 1.0}

KERNEL = Kernel(
    name="mlp",
    shapes={"x": "B D", "w_in": "2M D", "hidden": "B M"},
    outputs=("hidden",),
    attributes=("situ",),
    reference=reference,
    bound=bound,
    why="the products' rounding through gates of slope 1.1, 16 u a gate",
    launch=launch,
    inputs=inputs,
    tiling=products("M", 2),
    operations=operations,
    packed=("w_in",),
    cases=(
        Case({"B": 1, "D": 1, "M": 1}, attributes=_SILU),
        Case({"B": 1, "D": 256, "M": 100}, seed=1, attributes=_SILU),
        Case({"B": 3, "D": 63, "M": 257}, seed=2, attributes=_SITU),
        Case({"B": 63, "D": 3, "M": 5}, seed=3, attributes=_SILU),
        Case({"B": 5, "D": 65, "M": 9}, seed=4, scale=100, attributes=_SITU),
    ),
)
