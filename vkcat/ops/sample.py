"""The next token of each stream, by Gumbel-max.

    index = argmax_v logits[v]                                        temperature = 0
    index = argmax_v logits[v] / temperature + G_v,  v in top_k       temperature > 0

G_v = -log(-log u_v) is Gumbel noise, so that index has the probabilities softmax(logits / temperature). Ties go to the
lower index, in top_k too; NaN is never chosen; a row of only NaN gives 0. u_v is word v mod 4 of Philox4x32-10 with the
counter (v div 4, position, 0, 0) and the key (seed, stream): one stream's tokens depend on nothing beside it.

Sources: Gumbel, Statistical Theory of Extreme Values, 1954; Maddison, Tarlow and Minka, A* Sampling, arXiv 1411.0030
(Gumbel-max); Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, SC 2011 (Philox).

| tensor | shape | dtype |
|---|---|---|
| logits | (B, V) | float32 |
| seed, stream | (B) | uint32 |
| temperature | (B) | float32; 0 is greedy |
| top_k | (B) | uint32; 0 is all |
| mode | (B) | uint32: 0 hold (the token stays), 1 step, 2 restart (position 0) |
| token | (B), updated in place | uint32 |
| position | (B), updated in place | uint32: steps of the stream so far, modulo 2^32 |
| history | (B, M), updated in place | uint32: the token of each of the last M steps, at its position modulo M |

M divides 2^32, so that history goes on where position starts again.
"""

from __future__ import annotations

import numpy as np

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.ops import argmax
from vkcat.ops.gates import HOLD, RESTART, STEP
from vkcat.tiling import Tiling, of_lanes

_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)


def philox(counter: Array, key: tuple[int, int]) -> Array:
    """Philox4x32-10 of counters (n, 4) with one key: words (n, 4), uint32."""
    x, y, z, w = (counter[:, i].astype(np.uint64) for i in range(4))
    keys = [np.uint64(k & 0xFFFFFFFF) for k in key]
    for _ in range(10):
        first, second = x * np.uint64(_MULTIPLIERS[0]), z * np.uint64(_MULTIPLIERS[1])
        x, y, z, w = (
            (second >> np.uint64(32)) ^ y ^ keys[0],
            second & _LOW,
            (first >> np.uint64(32)) ^ w ^ keys[1],
            first & _LOW,
        )
        keys = [(k + np.uint64(weyl)) & _LOW for k, weyl in zip(keys, _WEYL, strict=True)]
    return np.stack([x, y, z, w], axis=1).astype(np.uint32)


def gumbel(seed: int, stream: int, position: int, count: int) -> Array:
    """Noise of `count` indices, float64."""
    counter = np.zeros((-(-count // 4), 4), np.uint32)
    counter[:, 0] = np.arange(len(counter))
    counter[:, 1] = position
    words = philox(counter, (seed, stream)).reshape(-1)[:count].astype(np.float64)
    # log1p keeps the small ones; both ends of (0, 1) are half a step away.
    exponential = -np.log1p(-(words + 0.5) * 2.0**-32)
    return np.asarray(-np.log(exponential))


def _scores(t: Arrays) -> Array:
    """What the argmax is taken of, (B, V): NaN where a token may not be chosen."""
    scores = t["logits"].copy()
    V = scores.shape[1]
    for b, logits in enumerate(t["logits"]):
        temperature, k = t["temperature"][b], int(t["top_k"][b])
        if not temperature > 0:
            continue
        if 0 < k < V:
            # A stable sort of the negated keeps equal ones in the order of their index; NaN goes last.
            scores[b, np.argsort(-logits, kind="stable")[k:]] = np.nan
        position = 0 if t["mode"][b] == RESTART else int(t["position"][b])
        scores[b] = scores[b] / temperature + gumbel(int(t["seed"][b]), int(t["stream"][b]), position, V)
    return np.asarray(scores)


def reference(t: Arrays) -> dict[str, Array]:
    chosen = argmax.reference({"x": _scores(t)})["index"]
    held = t["mode"] == HOLD
    position = np.where(t["mode"] == RESTART, 0, t["position"].astype(np.int64)) + 1
    token = np.where(held, t["token"], chosen).astype(np.uint32)
    after = np.where(held, t["position"], position & 0xFFFFFFFF).astype(np.uint32)
    history = t["history"].copy()
    live = np.flatnonzero(~held)
    history[live, (position[live] - 1) % history.shape[1]] = chosen[live]
    return {"token": token, "position": after, "history": history}


def bound(t: Arrays) -> dict[str, Array]:
    return {name: np.zeros(t[name].shape) for name in ("token", "position", "history")}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` when the history's length is no power of two."""
    if sizes["M"] & (sizes["M"] - 1):
        raise ShapeError(mismatch("sample: history", "a power of two of steps", sizes["M"]))
    return Launch(workgroups=(sizes["B"], 1, 1))


def _margin(scores: Array) -> Array:
    """How far the greatest score of each row is ahead of the next, by the size of the scores; 0 for equal ones."""
    ranked = np.sort(np.where(np.isnan(scores), -np.inf, scores), axis=1)
    if ranked.shape[1] == 1:
        return np.full(len(ranked), np.inf)
    with np.errstate(invalid="ignore"):
        return np.asarray((ranked[:, -1] - ranked[:, -2]) / (1 + np.abs(ranked[:, -1])))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    """Rows in turn: greedy on argmax's awkward rows, drawn from all, from the top few with ties, at other positions."""
    B, V = case.sizes["B"], case.sizes["V"]
    greedy = np.arange(B) % 3 == 0
    ties = rng.integers(0, 4, (B, V)) / 2
    drawn = np.where((np.arange(B) % 3 == 1)[:, None], rng.standard_normal((B, V)), ties)
    t = {
        "logits": np.where(greedy[:, None], argmax.inputs(rng, case)["x"], drawn).astype(np.float32),
        "seed": rng.integers(0, 1 << 32, B, dtype=np.uint32),
        "stream": np.arange(B, dtype=np.uint32),
        "temperature": np.where(greedy, 0, rng.choice([0.25, 1, 3], B)).astype(np.float32),
        "top_k": np.where(np.arange(B) % 3 == 1, 0, rng.integers(0, V + 2, B)).astype(np.uint32),
        "mode": rng.choice(np.array([HOLD, STEP, STEP, RESTART], np.uint32), B),
        "token": rng.integers(0, V, B, dtype=np.uint32),
        "position": rng.choice(np.array([0, 1, (1 << 31) - 1, (1 << 32) - 1], np.uint32), B),
        "history": rng.integers(0, V, (B, case.sizes["M"]), dtype=np.uint32),
    }
    t["mode"][0] = STEP
    while True:
        # float32 rounds the noise: a row whose two best are within 1e-4 is drawn again.
        wide = {name: array.astype(np.float64) if name == "logits" else array for name, array in t.items()}
        close = ~greedy & (_margin(_scores(wide)) < 1e-4)
        if not close.any():
            return t
        t["seed"][close] = rng.integers(0, 1 << 32, int(close.sum()), dtype=np.uint32)


KERNEL = Kernel(
    name="sample",
    shapes={
        "logits": "B V",
        "seed": "B",
        "stream": "B",
        "temperature": "B",
        "top_k": "B",
        "mode": "B",
        "token": "B",
        "position": "B",
        "history": "B M",
    },
    outputs=(),
    updates=("token", "position", "history"),
    reference=reference,
    bound=bound,
    why="an index is exact",
    launch=launch,
    tiling=of_lanes,
    inputs=inputs,
    operations=lambda sizes, attributes: 7 * sizes["B"] * sizes["V"],
    moved=lambda sizes, attributes: {"history": sizes["B"]},
    cases=(
        Case({"B": 2, "V": 1, "M": 1}),
        Case({"B": 42, "V": 3, "M": 4}, seed=1),
        Case({"B": 42, "V": 63, "M": 64}, seed=2),
        Case({"B": 63, "V": 100, "M": 2}, seed=3),
        Case({"B": 100, "V": 257, "M": 8}, seed=4),
        Case({"B": 3, "V": 5000, "M": 128}, seed=5),
    ),
)
