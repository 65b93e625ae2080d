"""Depth-weighted average over the stream after every block so far.

    x_j = h_j + v_j                what the stream holds after block j
    h_{j+1} = sum_{k <= j} alpha_k x_k

Source: Pagliardini et al., DenseFormer, arXiv 2402.02622, equation 3. With alpha one at j and zero elsewhere, as it is
initialised, h_{j+1} is the residual stream, bit by bit.

| tensor | shape | dtype |
|---|---|---|
| v, h, y | (B, D) | float32 |
| alpha | (J) | float32; those past `at` are not read |
| sources | (B, J, D) | float32: x_0 to x_{J-1}; source `at` is set in place |

`at` is an attribute: j.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes, dot_error
from vkcat.tiling import Tiling


def reference(t: Arrays) -> dict[str, Array]:
    last = int(t["at"])
    sources = t["sources"].copy()
    sources[:, last] = t["h"] + t["v"]
    return {"sources": sources, "y": np.einsum("bjd,j->bd", sources[:, : last + 1], t["alpha"][: last + 1])}


def bound(t: Arrays) -> dict[str, Array]:
    last = int(t["at"])
    after = np.abs(reference(t)["sources"][:, : last + 1])
    error = np.zeros(t["sources"].shape)
    error[:, last] = UNIT_ROUNDOFF * after[:, last]
    alpha = np.abs(t["alpha"][: last + 1])
    y = np.einsum("bjd,j->bd", error[:, : last + 1], alpha) + dot_error(last + 1, np.einsum("bjd,j->bd", after, alpha))
    return {"sources": error, "y": y}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(invocations=(sizes["D"], sizes["B"], 1))


def moved(sizes: Sizes, attributes: Mapping[str, float]) -> dict[str, int]:
    """Sources before `at` are read, that one is written."""
    return {"sources": sizes["B"] * sizes["D"] * (int(attributes["at"]) + 1), "alpha": int(attributes["at"]) + 1}


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, J, D = (case.sizes[name] for name in "BJD")
    last = int(case.attributes["at"])
    sources = rng.standard_normal((B, J, D)).astype(np.float32)
    alpha = rng.standard_normal(J).astype(np.float32)
    # What comes later, or is about to be set, must not be looked at.
    sources[:, last] = np.nan
    sources[:, last + 1 :] = 1e30
    alpha[last + 1 :] = np.nan
    return {
        "v": rng.standard_normal((B, D)).astype(np.float32),
        "h": rng.standard_normal((B, D)).astype(np.float32),
        "alpha": alpha,
        "sources": sources,
    }


KERNEL = Kernel(
    name="depth_dwa",
    shapes={"v": "B D", "h": "B D", "alpha": "J", "sources": "B J D", "y": "B D"},
    outputs=("y",),
    updates=("sources",),
    attributes=("at",),
    reference=reference,
    bound=bound,
    why="one rounding of the newest source, and the sum's",
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: sizes["B"] * sizes["D"] * (2 * int(attributes["at"]) + 3),
    moved=moved,
    cases=(
        Case({"B": 1, "J": 1, "D": 1}, attributes={"at": 0}),
        Case({"B": 3, "J": 5, "D": 63}, seed=1, attributes={"at": 3}),
        Case({"B": 63, "J": 4, "D": 3}, seed=2, attributes={"at": 3}),
        Case({"B": 2, "J": 9, "D": 257}, seed=3, attributes={"at": 0}),
        Case({"B": 2, "J": 100, "D": 5}, seed=4, attributes={"at": 99}),
    ),
)
