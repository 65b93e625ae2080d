"""Gated MLP of every chosen expert of every token, in one dispatch.

    y = W_out (act(W_gate x) * (W_up x))
    act(g) u = silu(g) u                                            `situ` = 0
             = [4 tanh(g / 4) sigmoid(g)] [25 tanh(u / 25)]         `situ` = 1

Sources: Shazeer, GLU Variants Improve Transformer, arXiv 2002.05202 (SwiGLU); the Kimi K3 report (SiTU). With E = 1 and
index 0 it is a plain gated MLP, or a shared expert.

| tensor | shape | dtype |
|---|---|---|
| x | (B, D) | float32 |
| index | (B, S) | uint32, below E |
| w_in | (E, 2M, D): gate rows, then up rows | float32 |
| w_out | (E, D, M), M at most 2048 | float32 |
| y | (B, S, D) | float32 |
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes, dot_error
from vkcat.ops.gates import gated, gated_error, gated_operations
from vkcat.tiling import Tiling, of_experts

WIDEST = 2048


def _products(t: Arrays) -> tuple[Array, Array]:
    """Gate and up products, (B, S, M) each."""
    both = np.einsum("bsmd,bd->bsm", t["w_in"][t["index"]], t["x"])
    gate, up = np.split(both, 2, axis=2)
    return gate, up


def reference(t: Arrays) -> dict[str, Array]:
    hidden = gated(*_products(t), bool(t["situ"]))
    return {"y": np.einsum("bsdm,bsm->bsd", t["w_out"][t["index"]], hidden)}


def bound(t: Arrays) -> dict[str, Array]:
    D, M = t["w_in"].shape[2], t["w_out"].shape[2]
    gate, up = _products(t)
    magnitude = np.einsum("bsmd,bd->bsm", np.abs(t["w_in"][t["index"]]), np.abs(t["x"]))
    e_gate, e_up = np.split(dot_error(D, magnitude, t), 2, axis=2)
    hidden = np.abs(gated(gate, up, bool(t["situ"])))
    e_hidden = gated_error(gate, up, e_gate, e_up, bool(t["situ"]))
    w_out = np.abs(t["w_out"][t["index"]])
    sums = np.einsum("bsdm,bsm->bsd", w_out, hidden + e_hidden)
    return {"y": np.einsum("bsdm,bsm->bsd", w_out, e_hidden) + dot_error(M, sums, t)}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` when an expert is wider than the shared memory that holds its hidden vector."""
    if sizes["M"] > WIDEST:
        raise ShapeError(mismatch("moe_expert: w_out", f"M at most {WIDEST}", sizes["M"]))
    return Launch(workgroups=(sizes["B"], sizes["S"], 1))


def moved(sizes: Sizes, attributes: Mapping[str, float]) -> dict[str, int]:
    """Only chosen experts' weights are read."""
    one = sizes["B"] * sizes["S"] * sizes["D"] * sizes["M"]
    return {"w_in": 2 * one, "w_out": one}


def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
    """Three products of D and M for each choice, and the gates."""
    B, S, D, M = (sizes[name] for name in "BSDM")
    return B * S * M * (6 * D + gated_operations(attributes))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, S, E, D, M = (case.sizes[name] for name in "BSEDM")
    index = rng.integers(0, E, (B, S), dtype=np.uint32)
    index[0, 0], index[-1, -1] = 0, E - 1
    weights = {
        "w_in": (rng.standard_normal((E, 2 * M, D)) / np.sqrt(D)).astype(np.float32),
        "w_out": (rng.standard_normal((E, D, M)) / np.sqrt(M)).astype(np.float32),
    }
    for array in weights.values():
        # An expert that no token chose must not be read.
        array[~np.isin(np.arange(E), index)] = np.nan
    return {"x": (case.scale * rng.standard_normal((B, D))).astype(np.float32), "index": index, **weights}


_SILU, _SITU = {"situ": 0.0}, {"situ": 1.0}

KERNEL = Kernel(
    name="moe_expert",
    shapes={"x": "B D", "index": "B S", "w_in": "E 2M D", "w_out": "E D M", "y": "B S D"},
    outputs=("y",),
    attributes=("situ",),
    reference=reference,
    bound=bound,
    why="both products' rounding through gates of slope 1.1, 16 u a gate",
    launch=launch,
    tiling=lambda sizes, machine: of_experts(sizes["M"], machine),
    inputs=inputs,
    operations=operations,
    packed=("w_in", "w_out"),
    moved=moved,
    cases=(
        Case({"B": 1, "S": 1, "E": 1, "D": 1, "M": 1}, attributes=_SILU),
        Case({"B": 3, "S": 2, "E": 5, "D": 63, "M": 100}, seed=1, attributes=_SILU),
        Case({"B": 2, "S": 3, "E": 3, "D": 100, "M": 63}, seed=2, attributes=_SITU),
        Case({"B": 2, "S": 1, "E": 2, "D": 257, "M": 65}, seed=3, attributes=_SITU),
        Case({"B": 63, "S": 2, "E": 7, "D": 3, "M": 5}, seed=4, attributes=_SILU),
        Case({"B": 3, "S": 1, "E": 2, "D": 8, "M": 257}, seed=5, scale=100, attributes=_SITU),
    ),
)
