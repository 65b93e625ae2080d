"""Argmax: index[b] = the lowest index of the greatest x[b, v]; NaN is never chosen, a row of only NaN gives 0.

| tensor | shape | dtype |
|---|---|---|
| x | (B, V) | float32 |
| index | (B) | uint32 |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.tiling import Tiling, of_lanes


def reference(t: Arrays) -> dict[str, Array]:
    x = t["x"]
    chosen = np.argmax(np.where(np.isnan(x), -np.inf, x), axis=1)
    # A NaN ahead of a row's -inf must not win the tie between them.
    first = np.argmax(~np.isnan(x), axis=1)
    return {"index": np.maximum(chosen, first).astype(np.uint32)}


def bound(t: Arrays) -> dict[str, Array]:
    return {"index": np.zeros(len(t["x"]))}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(workgroups=(sizes["B"], 1, 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    """Rows of every awkward kind in turn: random, the greatest last, tied, all equal, with NaN, all -inf or NaN."""
    B, V = case.sizes["B"], case.sizes["V"]
    x = rng.standard_normal((B, V)).astype(np.float32)
    for b in range(B):
        kind = (b + case.seed) % 7
        if kind == 1:
            x[b, -1] = 9
        elif kind == 2:
            x[b, rng.integers(0, V, 3)] = 9
        elif kind == 3:
            x[b] = 0.5
        elif kind == 4:
            x[b, rng.random(V) < 0.5] = np.nan
        elif kind == 5:
            x[b] = -np.inf
            x[b, : V // 2] = np.nan
        elif kind == 6:
            x[b] = np.nan
    return {"x": x}


KERNEL = Kernel(
    name="argmax",
    shapes={"x": "B V", "index": "B"},
    outputs=("index",),
    reference=reference,
    bound=bound,
    why="an index is exact",
    launch=launch,
    tiling=of_lanes,
    inputs=inputs,
    operations=lambda sizes, attributes: sizes["B"] * sizes["V"],
    cases=(
        Case({"B": 1, "V": 1}),
        Case({"B": 1, "V": 74}, seed=1),
        Case({"B": 14, "V": 3}, seed=2),
        Case({"B": 14, "V": 63}, seed=3),
        Case({"B": 63, "V": 100}, seed=4),
        Case({"B": 100, "V": 257}, seed=5),
        Case({"B": 3, "V": 5000}, seed=1),
    ),
)
