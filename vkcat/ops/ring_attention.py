"""Attention over a ring of the last W steps, the step's own key and value among them.

    o = softmax(q . k / sqrt(d) - slope * age) v

over the last min(t, W) entries; age 0 is the newest. An entry of score -Inf has no weight; o = 0 where none has any.
It equals attention over the whole sequence under a band mask of
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
from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes, dot_error, underflow
from vkcat.tiling import Tiling, of_attention

WIDEST = 1024


class _Head(Struct, frozen=True):
    """One stream and head: where its answer stands, its query, and by age its keys, values, biases and scores.

    `past` is where its entries stand in the rings, newest first.
    """

    at: tuple[int, slice]
    past: tuple[int, Array, slice]
    q: Array
    k: Array
    v: Array
    biases: Array
    scores: Array


def _heads(t: Arrays) -> Iterator[_Head]:
    """Every stream and head that has something to attend to."""
    W, N = t["k_ring"].shape[1], len(t["slopes"])
    d = t["q"].shape[1] // N
    heads_a_group = N // (t["k_ring"].shape[2] // d)
    for b, steps in enumerate(t["t"].astype(np.int64)):
        ages = np.arange(min(steps, W))
        slots = (steps - 1 - ages) % W
        for head in range(N if len(ages) else 0):
            group = head // heads_a_group
            part, own = slice(group * d, (group + 1) * d), slice(head * d, (head + 1) * d)
            q, k, v = t["q"][b, own], t["k_ring"][b, slots, part], t["v_ring"][b, slots, part]
            biases = t["slopes"][head] * ages
            scores = k @ q / math.sqrt(d) - biases
            if not (scores == -np.inf).all():
                yield _Head((b, own), (b, slots, part), q, k, v, biases, scores)


def _weights(scores: Array) -> Array:
    """NaN of all when one is, or +Inf."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.exp(scores - scores.max()))


def reference(t: Arrays) -> dict[str, Array]:
    o = np.zeros_like(t["q"])
    for head in _heads(t):
        weights = _weights(head.scores)
        o[head.at] = weights @ head.v / weights.sum()
    return {"o": o}


def bound(t: Arrays) -> dict[str, Array]:
    return {"o": error(t, {name: np.zeros_like(t[name]) for name in ("q", "k_ring", "v_ring")})}


def error(t: Arrays, errors: Arrays) -> Array:
    """A score's error e changes every weight by a factor within exp(2e); sums and exp add theirs.

    `errors` are by how much q, k_ring and v_ring are wrong already.
    """
    o = np.zeros_like(t["q"])
    for head in _heads(t):
        d, scores = len(head.q), head.scores
        q_error, k_error, v_error = errors["q"][head.at], errors["k_ring"][head.past], errors["v_ring"][head.past]
        magnitude = np.abs(head.k) @ np.abs(head.q) / math.sqrt(d) + np.abs(head.biases)
        before = np.abs(head.k) @ q_error + k_error @ np.abs(head.q) + k_error @ q_error
        e = (dot_error(d + 4, magnitude) + before / math.sqrt(d)).max()
        span = np.minimum(scores.max() - scores, 100).max()
        rounding = 2 * (2 * (3 + 2 * span) + len(scores) + 8) * UNIT_ROUNDOFF
        relative = np.expm1(min(2 * e, 100)) + rounding
        weights = _weights(scores)
        each = weights @ (relative * np.abs(head.v) + (1 + relative) * v_error) / weights.sum()
        # Whatever the weights are, the answer lies between the values.
        size = np.abs(head.v).max(axis=0)
        between = np.ptp(head.v, axis=0) + rounding * size + v_error.max(axis=0)
        # Weights that fall below normal numbers are lost with what they weigh, and so are products.
        o[head.at] = np.minimum(each, between) + underflow(np.abs(head.v), 2 + np.abs(head.v)).sum(axis=0)
    return o


CONSTANTS = {"HEADS_OF_VEC4": lambda sizes: int(sizes["Q"] // sizes["N"] % 4 == 0)}
"""Of the shaders that attend: see shaders/include/attend.glsl."""


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` when the heads do not divide the widths, or are too wide."""
    Q, C, N = sizes["Q"], sizes["C"], sizes["N"]
    d = Q // N
    if Q % N or C % d or N % (C // d) or d > WIDEST:
        fitting = f"q (B, N d), rings (B, W, G d) with N a multiple of G and d at most {WIDEST}"
        raise ShapeError(mismatch("ring_attention", fitting, f"N = {N}, q {Q} wide, rings {C} wide"))
    return Launch(workgroups=(sizes["B"], sizes["N"], 1))


def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
    """Over a full ring: two products an entry and channel, seven for each score and its exp, and a division."""
    B, W, Q, N = (sizes[name] for name in "BWQN")
    return B * (4 * W * Q + 7 * N * W + Q)


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
    tiling=of_attention,
    constants=CONSTANTS,
    inputs=inputs,
    operations=operations,
    cases=(
        Case({"B": 1, "W": 1, "C": 1, "Q": 1, "N": 1}),
        Case({"B": 3, "W": 5, "C": 63, "Q": 63, "N": 3}, seed=1),
        Case({"B": 5, "W": 64, "C": 32, "Q": 128, "N": 4}, seed=2),
        Case({"B": 2, "W": 100, "C": 257, "Q": 257, "N": 1}, seed=5),
        Case({"B": 4, "W": 65, "C": 14, "Q": 42, "N": 6}, seed=4),
        Case({"B": 63, "W": 3, "C": 4, "Q": 8, "N": 2}, seed=5),
        Case({"B": 2, "W": 200, "C": 16, "Q": 64, "N": 4}, seed=6, scale=30),
    ),
)
