"""Write a step's key and value into each stream's ring, before attention reads it.

A ring holds the last W steps; slot t mod W is the step t's. The count t stays below 2W, as from W on only its remainder
by W matters, so it never overflows.

| tensor | shape | dtype |
|---|---|---|
| k, v | (B, C), C = key and value heads times head width | float32 |
| t, t_next | (B) | uint32: steps so far, kept below 2W |
| mode | (B) | uint32: 0 hold (nothing changes), 1 step, 2 restart (t = 0 before the step) |
| k_ring, v_ring | (B, W, C) | float32, updated in place |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.ops.gates import HOLD, RESTART, draw_modes
from vkcat.tiling import Tiling


def reference(t: Arrays) -> dict[str, Array]:
    k_ring, v_ring = t["k_ring"].copy(), t["v_ring"].copy()
    W = k_ring.shape[1]
    counts = np.where(t["mode"] == RESTART, 0, t["t"]).astype(np.int64)
    for b in np.flatnonzero(t["mode"] != HOLD):
        k_ring[b, counts[b] % W] = t["k"][b]
        v_ring[b, counts[b] % W] = t["v"][b]
        counts[b] = counts[b] + 1 if counts[b] + 1 < 2 * W else W
    return {"k_ring": k_ring, "v_ring": v_ring, "t_next": counts.astype(np.uint32)}


def bound(t: Arrays) -> dict[str, Array]:
    return {
        name: np.zeros(t[like].shape) for name, like in (("k_ring", "k_ring"), ("v_ring", "v_ring"), ("t_next", "t"))
    }


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(invocations=(sizes["C"], sizes["B"], 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, W, C = (case.sizes[name] for name in "BWC")
    t = rng.integers(0, 2 * W, B, dtype=np.uint32)
    # The count's last value, whose successor starts the second round again.
    t[0] = 2 * W - 1
    mode = draw_modes(rng, B)
    return {
        "k": rng.standard_normal((B, C)).astype(np.float32),
        "v": rng.standard_normal((B, C)).astype(np.float32),
        "t": t,
        "mode": mode,
        "k_ring": rng.standard_normal((B, W, C)).astype(np.float32),
        "v_ring": rng.standard_normal((B, W, C)).astype(np.float32),
    }


KERNEL = Kernel(
    name="ring_write",
    shapes={
        "k": "B C",
        "v": "B C",
        "t": "B",
        "mode": "B",
        "k_ring": "B W C",
        "v_ring": "B W C",
        "t_next": "B",
    },
    outputs=("t_next",),
    updates=("k_ring", "v_ring"),
    reference=reference,
    bound=bound,
    why="a copy is exact",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: 0,
    moved=lambda sizes, attributes: dict.fromkeys(("k_ring", "v_ring"), sizes["B"] * sizes["C"]),
    cases=(
        Case({"B": 1, "W": 1, "C": 1}),
        Case({"B": 3, "W": 3, "C": 63}, seed=1),
        Case({"B": 63, "W": 5, "C": 3}, seed=2),
        Case({"B": 2, "W": 100, "C": 257}, seed=3),
        Case({"B": 257, "W": 2, "C": 4}, seed=4),
    ),
)
