"""Embedding: y[b] = table[ids[b]].

| tensor | shape | dtype |
|---|---|---|
| ids | (B) | uint32, below V |
| table | (V, D) | float32 |
| y | (B, D) | float32 |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.tiling import Tiling


def reference(t: Arrays) -> dict[str, Array]:
    """Rows of the table, exactly."""
    return {"y": t["table"][t["ids"]]}


def bound(t: Arrays) -> dict[str, Array]:
    return {"y": np.zeros((len(t["ids"]), t["table"].shape[1]))}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(invocations=(sizes["D"], sizes["B"], 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, V, D = (case.sizes[name] for name in "BVD")
    ids = rng.integers(0, V, B, dtype=np.uint32)
    # Both ends of the table are always read.
    ids[0], ids[-1] = 0, V - 1
    return {"ids": ids, "table": rng.standard_normal((V, D)).astype(np.float32)}


KERNEL = Kernel(
    name="embedding",
    shapes={"ids": "B", "table": "V D", "y": "B D"},
    outputs=("y",),
    reference=reference,
    bound=bound,
    why="a copy is exact",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: 0,
    packed=("table",),
    moved=lambda sizes, attributes: {"table": sizes["B"] * sizes["D"]},
    cases=(
        Case({"B": 1, "V": 1, "D": 1}),
        Case({"B": 3, "V": 29, "D": 63}, seed=1),
        Case({"B": 63, "V": 100, "D": 257}, seed=2),
        Case({"B": 257, "V": 3, "D": 100}, seed=3),
        Case({"B": 2, "V": 74, "D": 256}, seed=4),
    ),
)
