"""Capacity of the experts of a step: each takes its first `capacity` choices in the order of tokens.

    kept[b, s] = weight[b, s] if fewer than `capacity` earlier tokens chose the same expert, else 0

Source: Fedus, Zoph and Shazeer, Switch Transformers, arXiv 2101.03961, section 2.2: capacity is the ceiling of factor *
tokens * S / E; what overflows is dropped. Here it is counted too.

| tensor | shape | dtype |
|---|---|---|
| index | (B, S), different in a row | uint32 |
| weight, kept | (B, S) | float32 |
| mode | (B) | uint32: a held stream (0) has no token; its weights stay |
| dropped | (B) | uint32: choices of each token that found no room |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.ops.gates import HOLD, draw_modes
from vkcat.tiling import Tiling


def reference(t: Arrays) -> dict[str, Array]:
    taken: dict[int, int] = {}
    kept = np.zeros_like(t["weight"])
    dropped = np.zeros(len(kept), np.uint32)
    for b, row in enumerate(t["index"]):
        if t["mode"][b] == HOLD:
            kept[b] = t["weight"][b]
            continue
        for s, expert in enumerate(row.tolist()):
            taken[expert] = taken.get(expert, 0) + 1
            if taken[expert] <= t["capacity"]:
                kept[b, s] = t["weight"][b, s]
            else:
                dropped[b] += 1
    return {"kept": kept, "dropped": dropped}


def bound(t: Arrays) -> dict[str, Array]:
    return {"kept": np.zeros(t["weight"].shape), "dropped": np.zeros(len(t["weight"]))}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(invocations=(sizes["B"], 1, 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, S = case.sizes["B"], case.sizes["S"]
    index = np.stack([rng.permutation(S + 3)[:S] for _ in range(B)]).astype(np.uint32)
    weight = rng.uniform(0.1, 1, (B, S)).astype(np.float32)
    return {"index": index, "weight": weight, "mode": draw_modes(rng, B)}


KERNEL = Kernel(
    name="moe_capacity",
    shapes={"index": "B S", "weight": "B S", "mode": "B", "kept": "B S", "dropped": "B"},
    outputs=("kept", "dropped"),
    attributes=("capacity",),
    reference=reference,
    bound=bound,
    why="a copy is exact",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: 0,
    cases=(
        Case({"B": 1, "S": 1}, attributes={"capacity": 1}),
        Case({"B": 3, "S": 3}, seed=1, attributes={"capacity": 1}),
        Case({"B": 63, "S": 2}, seed=2, attributes={"capacity": 20}),
        Case({"B": 100, "S": 4}, seed=3, attributes={"capacity": 58}),
        Case({"B": 257, "S": 1}, seed=4, attributes={"capacity": 257}),
    ),
)
