"""Attention residuals: what a block reads is a softmax mix of what earlier blocks added, by a learned query.

    source_at <- v, or source_at + v when it is the running sum of a block of layers (`fresh` = 0)
    alpha = softmax_{j <= at}(query . rmsnorm(source_j))            no 1 / sqrt(D)
    mix = sum_j alpha_j source_j                                    sources are not normalised
    after = before + v                                              the plain residual stream
    y = (1 - gamma) after + gamma mix

Source: Attention Residuals, arXiv 2603.15031, full and block form; its RMSNorm's gain is one with the query. The gate
is ours: a zero query gives the mean, not the old path, while gamma = 0 gives it bit by bit. gamma = 1 is the paper.

| tensor | shape | dtype |
|---|---|---|
| v, before, after, y | (B, D) | float32 |
| query | (D) | float32 |
| gamma | (1) | float32 |
| sources | (B, J, D), J at most 256 | float32; source `at` is updated in place |

`at`, `fresh` and `eps` are attributes.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes, dot_error, underflow
from vkcat.ops.squares import mean_square
from vkcat.tiling import Tiling, of_lanes

MOST = 256


def _sources(t: Arrays) -> Array:
    """Sources after the update, (B, J, D)."""
    last = int(t["at"])
    sources = t["sources"].copy()
    sources[:, last] = t["v"] if t["fresh"] else sources[:, last] + t["v"]
    return sources


def _scores(t: Arrays, live: Array) -> Array:
    """(B, at + 1)"""
    return np.asarray((live @ t["query"]) / np.sqrt(mean_square(live, 2)[:, :, 0] + t["eps"]))


def _weights(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def reference(t: Arrays) -> dict[str, Array]:
    sources = _sources(t)
    live = sources[:, : int(t["at"]) + 1]
    mix = np.einsum("bj,bjd->bd", _weights(_scores(t, live)), live)
    after = t["before"] + t["v"]
    gamma = t["gamma"][0]
    return {"sources": sources, "after": after, "y": (1 - gamma) * after + gamma * mix}


def bound(t: Arrays) -> dict[str, Array]:
    """A score's error e changes every weight by a factor within exp(2e); the sums and exp add theirs."""
    u, last, gamma = UNIT_ROUNDOFF, int(t["at"]), abs(t["gamma"][0])
    sources = _sources(t)
    live = sources[:, : last + 1]
    D = live.shape[2]
    e_source = np.zeros(sources.shape)
    if not t["fresh"]:
        e_source[:, last] = u * np.abs(sources[:, last])
    scores = _scores(t, live)
    root = np.sqrt(mean_square(live, 2)[:, :, 0] + t["eps"])
    e_dot = dot_error(D + 1, np.abs(live) @ np.abs(t["query"])) / root
    e_root = (float(dot_error(D + 3, np.ones(1))[0]) / 2 + 10 * u) * np.abs(scores)
    e = (e_dot + e_root).max(axis=1, keepdims=True)
    span = np.minimum(scores.max(axis=1, keepdims=True) - scores.min(axis=1, keepdims=True), 100)
    relative = np.expm1(2 * e) + 2 * (2 * (3 + 2 * span) + last + 9) * u
    weights = _weights(scores)
    size = np.einsum("bj,bjd->bd", weights, np.abs(live))
    mix = relative * size + np.einsum("bj,bjd->bd", weights, e_source[:, : last + 1])
    after = np.abs(t["before"] + t["v"])
    kept = abs(1 - t["gamma"][0]) * after + gamma * size
    # Weights that fall below normal numbers are lost with what they weigh, and so are products.
    lost = underflow(np.abs(live), 2 + np.abs(live)).sum(axis=1)
    return {
        "sources": e_source,
        "after": u * after,
        "y": gamma * (mix + lost) + 3 * u * kept + u * after + underflow(kept, 2),
    }


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` when there are more sources than scores kept."""
    if sizes["J"] > MOST:
        raise ShapeError(mismatch("depth_attnres: sources", f"at most {MOST} of them", sizes["J"]))
    return Launch(workgroups=(sizes["B"], 1, 1))


def moved(sizes: Sizes, attributes: Mapping[str, float]) -> dict[str, int]:
    """Sources to `at` are read, for the scores and for the mix; that one is written, from itself unless `fresh`."""
    passes = 2 * (int(attributes["at"]) + 1) + (1 if attributes["fresh"] else 2)
    return {"sources": sizes["B"] * sizes["D"] * passes}


def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
    """Of a source: six a channel for score and mix, nine for its weight. Then the residual stream and the gate."""
    B, D, live = sizes["B"], sizes["D"], int(attributes["at"]) + 1
    return B * (live * (6 * D + 9) + D * (4 if attributes["fresh"] else 5))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, J, D = (case.sizes[name] for name in "BJD")
    last = int(case.attributes["at"])
    sources = (case.scale * rng.standard_normal((B, J, D))).astype(np.float32)
    # What comes later, or is about to be replaced, must not be looked at.
    sources[:, last + 1 :] = 1e30
    if case.attributes["fresh"]:
        sources[:, last] = np.nan
    if last > 1:
        sources[0, 0] = 0
    return {
        "v": (case.scale * rng.standard_normal((B, D))).astype(np.float32),
        "before": rng.standard_normal((B, D)).astype(np.float32),
        "query": (rng.standard_normal(D) / np.sqrt(D)).astype(np.float32),
        "gamma": np.array([(0.0, 1.0, 0.3)[case.seed % 3]], np.float32),
        "sources": sources,
    }


def _attributes(at: int, fresh: bool) -> dict[str, float]:
    return {"at": at, "fresh": float(fresh), "eps": 1e-6}


KERNEL = Kernel(
    name="depth_attnres",
    shapes={
        "v": "B D",
        "before": "B D",
        "query": "D",
        "gamma": "O",
        "sources": "B J D",
        "y": "B D",
        "after": "B D",
    },
    outputs=("y", "after"),
    updates=("sources",),
    attributes=("at", "fresh", "eps"),
    reference=reference,
    bound=bound,
    why="scores' rounding through exp, and the sums'",
    launch=launch,
    tiling=of_lanes,
    inputs=inputs,
    operations=operations,
    moved=moved,
    cases=(
        Case({"B": 1, "J": 1, "D": 1, "O": 1}, seed=1, attributes=_attributes(0, True)),
        Case({"B": 3, "J": 5, "D": 63, "O": 1}, seed=2, attributes=_attributes(3, True)),
        Case({"B": 2, "J": 4, "D": 257, "O": 1}, seed=4, attributes=_attributes(3, False)),
        Case({"B": 63, "J": 6, "D": 3, "O": 1}, seed=5, attributes=_attributes(2, False)),
        Case({"B": 5, "J": 9, "D": 65, "O": 1}, seed=6, attributes=_attributes(8, True)),
        Case({"B": 2, "J": 100, "D": 8, "O": 1}, seed=7, scale=100, attributes=_attributes(99, True)),
    ),
)
