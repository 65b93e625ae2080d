"""Linear: y[b, n] = sum_k w[n, k] x[b, k] + bias[n], as torch.nn.Linear.

| tensor | shape | dtype |
|---|---|---|
| x | (B, K) | float32 |
| w | (N, K) | float32 |
| bias | (N) | float32 |
| y | (B, N) | float32 |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes, dot_error, products
from vkcat.tiling import Tiling


def reference(t: Arrays) -> dict[str, Array]:
    return {"y": t["x"] @ t["w"].T + t["bias"]}


def bound(t: Arrays) -> dict[str, Array]:
    magnitude = np.abs(t["x"]) @ np.abs(t["w"]).T + np.abs(t["bias"])
    return {"y": dot_error(t["x"].shape[1] + 1, magnitude, t)}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch.of_products(sizes["N"], sizes["B"], tiling)


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, N, K = (case.sizes[name] for name in "BNK")
    return {
        "x": (case.scale * rng.standard_normal((B, K))).astype(np.float32),
        "w": rng.standard_normal((N, K)).astype(np.float32),
        "bias": rng.standard_normal(N).astype(np.float32),
    }


KERNEL = Kernel(
    name="linear",
    shapes={"x": "B K", "w": "N K", "bias": "N", "y": "B N"},
    outputs=("y",),
    reference=reference,
    bound=bound,
    why="min(n, 8 sqrt n) u sum|w||x|, n = K + 1, any order of summation",
    launch=launch,
    inputs=inputs,
    tiling=products("N", 1),
    operations=lambda sizes, attributes: sizes["B"] * sizes["N"] * (2 * sizes["K"] + 1),
    packed=("w",),
    cases=(
        Case({"B": 1, "N": 1, "K": 1}),
        Case({"B": 1, "N": 74, "K": 256}, seed=1),
        Case({"B": 1, "N": 257, "K": 63}, seed=2),
        Case({"B": 2, "N": 100, "K": 257}, seed=3),
        Case({"B": 3, "N": 3, "K": 3}, seed=4),
        Case({"B": 63, "N": 100, "K": 1}, seed=5),
        Case({"B": 100, "N": 63, "K": 257}, seed=6),
        Case({"B": 5, "N": 65, "K": 100}, seed=7, scale=1e4),
    ),
)
