"""Patch embedding: one patch of an image into the stream, with a learned place.

    y[b] = W patches[b, position[b]] + bias + places[position[b]]

Source: Dosovitskiy et al., An Image is Worth 16x16 Words, arXiv 2010.11929, equation 1. A patch is its pixels row by
row, channels innermost: K = side * side * channels.

| tensor | shape | dtype |
|---|---|---|
| patches | (B, P, K) | float32 |
| position | (B) | uint32, below P |
| w | (D, K) | float32 |
| bias | (D) | float32 |
| places | (P, D) | float32 |
| y | (B, D) | float32 |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes, dot_error
from vkcat.tiling import Tiling


def _chosen(t: Arrays) -> tuple[Array, Array]:
    """Each stream's patch (B, K) and place (B, D)."""
    position = t["position"].astype(np.int64)
    return t["patches"][np.arange(len(position)), position], t["places"][position]


def reference(t: Arrays) -> dict[str, Array]:
    patch, place = _chosen(t)
    return {"y": patch @ t["w"].T + t["bias"] + place}


def bound(t: Arrays) -> dict[str, Array]:
    patch, place = _chosen(t)
    magnitude = np.abs(patch) @ np.abs(t["w"]).T + np.abs(t["bias"]) + np.abs(place)
    return {"y": dot_error(patch.shape[1] + 2, magnitude, t)}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(invocations=(sizes["D"], sizes["B"], 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, P, K, D = (case.sizes[name] for name in "BPKD")
    position = rng.integers(0, P, B, dtype=np.uint32)
    position[-1] = P - 1
    return {
        "patches": rng.standard_normal((B, P, K)).astype(np.float32),
        "position": position,
        "w": rng.standard_normal((D, K)).astype(np.float32),
        "bias": rng.standard_normal(D).astype(np.float32),
        "places": rng.standard_normal((P, D)).astype(np.float32),
    }


KERNEL = Kernel(
    name="patch_embedding",
    shapes={"patches": "B P K", "position": "B", "w": "D K", "bias": "D", "places": "P D", "y": "B D"},
    outputs=("y",),
    reference=reference,
    bound=bound,
    why="min(n, 8 sqrt n) u of the sum of magnitudes, n = K + 2",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: sizes["B"] * sizes["D"] * (2 * sizes["K"] + 2),
    packed=("w",),
    moved=lambda sizes, attributes: {"patches": sizes["B"] * sizes["K"], "places": sizes["B"] * sizes["D"]},
    cases=(
        Case({"B": 1, "P": 1, "K": 1, "D": 1}),
        Case({"B": 3, "P": 49, "K": 16, "D": 63}, seed=1),
        Case({"B": 63, "P": 3, "K": 27, "D": 100}, seed=2),
        Case({"B": 2, "P": 5, "K": 257, "D": 65}, seed=3),
    ),
)
