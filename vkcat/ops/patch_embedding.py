"""Patch embedding: one patch of an image into the stream, with a learned place; or several, of one image a stream.

    y[r] = W patches[b, position[r]] + bias + places[position[r]]        b = r mod B

Source: Dosovitskiy et al., An Image is Worth 16x16 Words, arXiv 2010.11929, equation 1. A patch is its pixels row by
row, channels innermost: K = side * side * channels.

| tensor | shape | dtype |
|---|---|---|
| patches | (B, P, K) | float32 |
| position | (R), R = T B; R = B for one patch of each stream | uint32, below P |
| w | (D, K) | float32 |
| bias | (D) | float32 |
| places | (P, D) | float32 |
| y | (R, D) | float32 |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes, dot_error
from vkcat.ops.rows import check_rows
from vkcat.tiling import Tiling


def _chosen(t: Arrays) -> tuple[Array, Array]:
    """Each row's patch (R, K) and place (R, D)."""
    position = t["position"].astype(np.int64)
    return t["patches"][np.arange(len(position)) % len(t["patches"]), position], t["places"][position]


def reference(t: Arrays) -> dict[str, Array]:
    patch, place = _chosen(t)
    return {"y": patch @ t["w"].T + t["bias"] + place}


def bound(t: Arrays) -> dict[str, Array]:
    patch, place = _chosen(t)
    magnitude = np.abs(patch) @ np.abs(t["w"]).T + np.abs(t["bias"]) + np.abs(place)
    return {"y": dot_error(patch.shape[1] + 2, magnitude, t)}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    check_rows("patch_embedding", sizes)
    return Launch(invocations=(sizes["D"], sizes["R"], 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    R, B, P, K, D = (case.sizes[name] for name in "RBPKD")
    position = rng.integers(0, P, R, dtype=np.uint32)
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
    shapes={"patches": "B P K", "position": "R", "w": "D K", "bias": "D", "places": "P D", "y": "R D"},
    outputs=("y",),
    reference=reference,
    bound=bound,
    why="min(n, 8 sqrt n) u of the sum of magnitudes, n = K + 2",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: sizes["R"] * sizes["D"] * (2 * sizes["K"] + 2),
    packed=("w",),
    moved=lambda sizes, attributes: {"patches": sizes["R"] * sizes["K"], "places": sizes["R"] * sizes["D"]},
    cases=(
        Case({"R": 1, "B": 1, "P": 1, "K": 1, "D": 1}),
        Case({"R": 3, "B": 3, "P": 49, "K": 16, "D": 63}, seed=1),
        Case({"R": 63, "B": 63, "P": 3, "K": 27, "D": 100}, seed=2),
        Case({"R": 2, "B": 2, "P": 5, "K": 257, "D": 65}, seed=3),
        Case({"R": 65, "B": 5, "P": 13, "K": 27, "D": 63}, seed=4),
    ),
)
