"""Attention over a ring of the last W steps, the step's own key and value among them.

    o = softmax(q . k / sqrt(d) - slope * age) v

over the last min(t, W) entries; age 0 is the newest. It equals attention over the whole sequence under a band mask of
width W. Slopes are 0, or ALiBi's (Press, Smith and Lewis, arXiv 2108.12409). N heads of q share G = C / d heads of keys
and values, N / G each (grouped-query attention, Ainslie et al., arXiv 2305.13245).

| tensor | shape | dtype |
|---|---|---|
| q, o | (B, Q), Q = N d | float32 |
| k_ring, v_ring | (B, W, C), C = G d | float32 |
| t | (B) | uint32: entries so far, the newest among them; 0 gives o = 0 |
| slopes | (N) | float32 |

d is at most 1024: the sums of a head lie in shared memory.
"""

from __future__ import annotations

import math

import numpy as np

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes, dot_error

WIDEST = 1024


def _scores(t: Arrays, b: int, head: int) -> tuple[Array, Array, Array]:
    """Scores, keys and values of one stream and head by age."""
    W, N = t["k_ring"].shape[1], len(t["slopes"])
    d = t["q"].shape[1] // N
    group = head // (N // (t["k_ring"].shape[2] // d))
    count = min(int(t["t"][b]), W)
    slots = (int(t["t"][b]) - 1 - np.arange(count)) % W
    part = slice(group * d, (group + 1) * d)
    k, v = t["k_ring"][b, slots, part], t["v_ring"][b, slots, part]
    q = t["q"][b, head * d : (head + 1) * d]
    return k @ q / math.sqrt(d) - t["slopes"][head] * np.arange(count), k, v


def reference(t: Arrays) -> dict[str, Array]:
    o = np.zeros_like(t["q"])
    d = o.shape[1] // len(t["slopes"])
    for b in range(len(o)):
        for head in range(len(t["slopes"])):
            scores, _, v = _scores(t, b, head)
            if len(scores):
                weights = np.exp(scores - scores.max())
                o[b, head * d : (head + 1) * d] = weights @ v / weights.sum()
    return {"o": o}


def bound(t: Arrays) -> dict[str, Array]:
    """A score's error e changes every weight by a factor within exp(2e); sums and exp add theirs."""
    o = np.zeros_like(t["q"])
    d = o.shape[1] // len(t["slopes"])
    for b in range(len(o)):
        for head in range(len(t["slopes"])):
            scores, k, v = _scores(t, b, head)
            if not len(scores):
                continue
            q = t["q"][b, head * d : (head + 1) * d]
            biases = np.abs(t["slopes"][head]) * np.arange(len(scores))
            e = dot_error(d + 4, np.abs(k) @ np.abs(q) / math.sqrt(d) + biases).max()
            span = np.minimum(scores.max() - scores, 100).max()
            relative = np.expm1(2 * e) + 2 * (2 * (3 + 2 * span) + len(scores) + 8) * UNIT_ROUNDOFF
            weights = np.exp(scores - scores.max())
            o[b, head * d : (head + 1) * d] = relative * (weights @ np.abs(v)) / weights.sum()
    return {"o": o}


def launch(sizes: Sizes, tile: int) -> Launch:
    """Raises `ShapeError` when the heads do not divide the widths, or are too wide."""
    Q, C, N = sizes["Q"], sizes["C"], sizes["N"]
    d = Q // N
    if Q % N or C % d or N % (C // d) or d > WIDEST:
        fitting = f"q (B, N d), rings (B, W, G d) with N a multiple of G and d at most {WIDEST}"
        raise ShapeError(mismatch("ring_attention", fitting, f"N = {N}, q {Q} wide, rings {C} wide"))
    return Launch(workgroups=(sizes["B"], sizes["N"], 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, W, C, Q, N = (case.sizes[name] for name in ("B", "W", "C", "Q", "N"))
    t = rng.integers(1, 2 * W, B, dtype=np.uint32)
    t[-1] = W if B == 1 else 1
    k_ring = rng.standard_normal((B, W, C)).astype(np.float32)
    v_ring = rng.standard_normal((B, W, C)).astype(np.float32)
    for b in range(B):
        # What was never written must not be looked at.
        k_ring[b, min(t[b], W) :] = np.nan
        v_ring[b, min(t[b], W) :] = np.nan
    slopes = 2.0 ** (-8.0 * np.arange(1, N + 1) / N) if case.seed % 2 else np.zeros(N)
    return {
        "q": (case.scale * rng.standard_normal((B, Q))).astype(np.float32),
        "k_ring": k_ring,
        "v_ring": v_ring,
        "t": t,
        "slopes": slopes.astype(np.float32),
    }


KERNEL = Kernel(
    name="ring_attention",
    shapes={"q": "B Q", "k_ring": "B W C", "v_ring": "B W C", "t": "B", "slopes": "N", "o": "B Q"},
    outputs=("o",),
    reference=reference,
    bound=bound,
    why="scores' rounding through exp, and the sums'",
    launch=launch,
    inputs=inputs,
    cases=(
        Case({"B": 1, "W": 1, "C": 1, "Q": 1, "N": 1}),
        Case({"B": 3, "W": 5, "C": 63, "Q": 63, "N": 3}, seed=1),
        Case({"B": 5, "W": 64, "C": 32, "Q": 128, "N": 4}, seed=2),
        Case({"B": 2, "W": 100, "C": 257, "Q": 257, "N": 1}, seed=3),
        Case({"B": 4, "W": 65, "C": 14, "Q": 42, "N": 6}, seed=4),
        Case({"B": 63, "W": 3, "C": 4, "Q": 8, "N": 2}, seed=5),
        Case({"B": 2, "W": 200, "C": 16, "Q": 64, "N": 4}, seed=6, scale=30),
    ),
)
