"""Weighted sum of the chosen experts: combined[b] = sum_s weight[b, s] y[b, s].

Source: Shazeer et al., Outrageously Large Neural Networks, arXiv 1701.06538, equation 1.

| tensor | shape | dtype |
|---|---|---|
| y | (B, S, D) | float32 |
| weight | (B, S) | float32 |
| combined | (B, D) | float32 |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes, dot_error
from vkcat.tiling import Tiling


def reference(t: Arrays) -> dict[str, Array]:
    return {"combined": np.einsum("bsd,bs->bd", t["y"], t["weight"])}


def bound(t: Arrays) -> dict[str, Array]:
    magnitude = np.einsum("bsd,bs->bd", np.abs(t["y"]), np.abs(t["weight"]))
    return {"combined": dot_error(t["weight"].shape[1], magnitude)}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(invocations=(sizes["D"], sizes["B"], 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, S, D = (case.sizes[name] for name in "BSD")
    return {
        "y": rng.standard_normal((B, S, D)).astype(np.float32),
        "weight": rng.uniform(0, 1, (B, S)).astype(np.float32),
    }


KERNEL = Kernel(
    name="moe_combine",
    shapes={"y": "B S D", "weight": "B S", "combined": "B D"},
    outputs=("combined",),
    reference=reference,
    bound=bound,
    why="S u sum|w||y|",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: 2 * sizes["B"] * sizes["S"] * sizes["D"],
    cases=(
        Case({"B": 1, "S": 1, "D": 1}),
        Case({"B": 3, "S": 2, "D": 63}, seed=1),
        Case({"B": 100, "S": 4, "D": 3}, seed=2),
        Case({"B": 2, "S": 3, "D": 257}, seed=3),
    ),
)
