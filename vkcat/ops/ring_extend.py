"""Write the keys and values of a sequence's steps into each stream's ring, after `ring_sequence` has read that.

A ring holds the last W steps; slot t mod W is the step t's. The count t stays below 2W, as in `ring_write`.

| tensor | shape | dtype |
|---|---|---|
| k, v | (R, C), R = T B; row t B + b is stream b's step t | float32 |
| t, t_next | (B) | uint32: steps so far, kept below 2W |
| mode | (B) | uint32: 0 hold (nothing changes), 1 step, 2 restart (t = 0 before the first step) |
| lengths | (B) | uint32: how many of the steps are the stream's own |
| k_ring, v_ring | (B, W, C) | float32, updated in place |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.ops import ring_write
from vkcat.ops.gates import RESTART
from vkcat.ops.rows import check_rows, draw_lengths, steps_of
from vkcat.tiling import Tiling


def reference(t: Arrays) -> dict[str, Array]:
    """A ring_write of each step."""
    kept = {**t, "t_next": t["t"]}
    for own in steps_of(t, "k", "v"):
        kept |= ring_write.reference({**kept, **own, "t": kept["t_next"]})
    return {name: kept[name] for name in ("k_ring", "v_ring", "t_next")}


def bound(t: Arrays) -> dict[str, Array]:
    return ring_write.bound(t)


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    check_rows("ring_extend", sizes)
    return Launch(invocations=(sizes["C"], sizes["R"], 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    R, B, C = (case.sizes[name] for name in "RBC")
    of_a_step = ring_write.inputs(rng, case)
    of_a_step["mode"][-1] = RESTART
    rows = {name: rng.standard_normal((R, C)).astype(np.float32) for name in "kv"}
    return {**of_a_step, **rows, "lengths": draw_lengths(rng, B, R // B)}


KERNEL = Kernel(
    name="ring_extend",
    shapes={
        "k": "R C",
        "v": "R C",
        "t": "B",
        "mode": "B",
        "lengths": "B",
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
    moved=lambda sizes, attributes: dict.fromkeys(("k_ring", "v_ring"), sizes["R"] * sizes["C"]),
    cases=(
        Case({"R": 1, "B": 1, "W": 1, "C": 1}),
        Case({"R": 21, "B": 3, "W": 3, "C": 63}, seed=1),
        Case({"R": 126, "B": 63, "W": 5, "C": 3}, seed=2),
        Case({"R": 16, "B": 2, "W": 100, "C": 257}, seed=3),
        Case({"R": 514, "B": 257, "W": 2, "C": 4}, seed=4),
        Case({"R": 64, "B": 1, "W": 64, "C": 5}, seed=5),
    ),
)
