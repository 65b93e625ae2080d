"""Modulation by a context (FiLM): y = x * (1 + gamma) + beta, with film = (gamma, beta) side by side.

Source: Perez et al., FiLM, arXiv 1709.07871, equation 2, in the form whose zero is the identity. film is the product of
the context with W_m; W_m = 0 gives x itself, bit by bit.

| tensor | shape | dtype |
|---|---|---|
| x, y | (B, D) | float32 |
| film | (B, 2D) | float32: gamma, then beta |
"""

from __future__ import annotations

import numpy as np

from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes, underflow
from vkcat.tiling import Tiling


def reference(t: Arrays) -> dict[str, Array]:
    gamma, beta = np.split(t["film"], 2, axis=1)
    return {"y": t["x"] * (1 + gamma) + beta}


def bound(t: Arrays) -> dict[str, Array]:
    """Three roundings, each of at most the sum of the parts."""
    gamma, beta = np.split(t["film"], 2, axis=1)
    product = np.abs(t["x"]) * (1 + np.abs(gamma))
    return {"y": 3 * UNIT_ROUNDOFF * (product + np.abs(beta)) + underflow(product)}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(invocations=(sizes["D"], sizes["B"], 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, D = case.sizes["B"], case.sizes["D"]
    film = rng.standard_normal((B, 2 * D)).astype(np.float32)
    # A stream whose context gives zeros must keep x exactly: its bound is only that of the products with one.
    film[-1] = 0
    return {"x": rng.standard_normal((B, D)).astype(np.float32), "film": film}


KERNEL = Kernel(
    name="modulation",
    shapes={"x": "B D", "film": "B 2D", "y": "B D"},
    outputs=("y",),
    reference=reference,
    bound=bound,
    why="three roundings",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: 3 * sizes["B"] * sizes["D"],
    cases=(
        Case({"B": 2, "D": 1}),
        Case({"B": 3, "D": 63}, seed=1),
        Case({"B": 63, "D": 3}, seed=2),
        Case({"B": 2, "D": 257}, seed=3),
        Case({"B": 100, "D": 100}, seed=4),
    ),
)
