"""Of each stream's rows of a sequence its last: y[b] = x[(lengths[b] - 1) B + b].

| tensor | shape | dtype |
|---|---|---|
| x | (R, D), R = T B; row t B + b is stream b's step t | float32 |
| lengths | (B) | uint32: how many of the steps are the stream's own; with none y is its first row |
| y | (B, D) | float32 |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.ops.rows import check_rows, draw_lengths
from vkcat.tiling import Tiling


def reference(t: Arrays) -> dict[str, Array]:
    streams = len(t["lengths"])
    last = np.clip(t["lengths"].astype(np.int64), 1, len(t["x"]) // streams) - 1
    return {"y": t["x"][last * streams + np.arange(streams)]}


def bound(t: Arrays) -> dict[str, Array]:
    return {"y": np.zeros((len(t["lengths"]), t["x"].shape[1]))}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    check_rows("last_row", sizes)
    return Launch(invocations=(sizes["D"], sizes["B"], 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    R, B, D = (case.sizes[name] for name in "RBD")
    return {"x": rng.standard_normal((R, D)).astype(np.float32), "lengths": draw_lengths(rng, B, R // B)}


KERNEL = Kernel(
    name="last_row",
    shapes={"x": "R D", "lengths": "B", "y": "B D"},
    outputs=("y",),
    reference=reference,
    bound=bound,
    why="a copy is exact",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: 0,
    moved=lambda sizes, attributes: {"x": sizes["B"] * sizes["D"]},
    cases=(
        Case({"R": 1, "B": 1, "D": 1}),
        Case({"R": 63, "B": 9, "D": 65}, seed=1),
        Case({"R": 64, "B": 1, "D": 257}, seed=2),
        Case({"R": 300, "B": 100, "D": 3}, seed=3),
    ),
)
