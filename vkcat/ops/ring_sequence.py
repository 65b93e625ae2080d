"""Attention of every step of a sequence over the last W steps, those of the sequence and those of a ring before it.

    o = softmax(q . k / sqrt(d) - slope * age) v

as `ring_attention`, whose ring holds what was before the sequence; `ring_extend` adds the sequence's own afterwards.

| tensor | shape | dtype |
|---|---|---|
| q, o | (R, Q), Q = N d, R = T B; row t B + b is stream b's step t | float32 |
| k, v | (R, C), C = G d | float32 |
| t | (B) | uint32: entries of the ring so far |
| mode | (B) | uint32: 0 hold, 1 step, 2 restart (the ring counts as empty) |
| lengths | (B) | uint32: how many of the steps are the stream's own; past them, and held, o = 0 |
| slopes | (N) | float32 |
| k_ring, v_ring | (B, W, C) | float32 |

d is at most 1024: the sums of a head lie in shared memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.ops import ring_attention, ring_write
from vkcat.ops.gates import HOLD
from vkcat.ops.rows import check_rows, draw_lengths, steps_of
from vkcat.tiling import Tiling, of_attention


def _steps(t: Arrays) -> Iterator[dict[str, Array]]:
    """What a ring_attention of each step would be given; streams that do not read it have nothing to attend to."""
    now = {**t, "t_next": t["t"]}
    for own in steps_of(t, "q", "k", "v"):
        now |= ring_write.reference({**now, **own, "t": now["t_next"]})
        yield {**now, **own, "t": np.where(own["mode"] == HOLD, 0, now["t_next"])}


def reference(t: Arrays) -> dict[str, Array]:
    return {"o": np.concatenate([ring_attention.reference(step)["o"] for step in _steps(t)])}


def bound(t: Arrays) -> dict[str, Array]:
    return {"o": np.concatenate([ring_attention.bound(step)["o"] for step in _steps(t)])}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` when the heads do not divide the widths, or are too wide, or rows are too many for a ring."""
    check_rows("ring_sequence", sizes)
    if max(sizes["R"], sizes["B"] * sizes["W"]) * (sizes["C"] + 3) >= 1 << 31:
        raise ShapeError(mismatch("ring_sequence", "fewer than 2^31 numbers of keys", f"R = {sizes['R']}"))
    heads = ring_attention.launch(sizes, tiling).workgroups
    assert heads is not None
    return Launch(workgroups=(sizes["R"], heads[1], 1))


def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
    """As many as a ring_attention of each row over a full ring."""
    return ring_attention.operations({**sizes, "B": sizes["R"]}, attributes)


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    R, B, W, C, Q, N = (case.sizes[name] for name in ("R", "B", "W", "C", "Q", "N"))
    rings = ring_write.inputs(rng, case)
    for b, count in enumerate(rings["t"]):
        # What was never written must not be looked at.
        rings["k_ring"][b, min(count, W) :] = np.nan
        rings["v_ring"][b, min(count, W) :] = np.nan
    slopes = 2.0 ** (-8.0 * np.arange(1, N + 1) / N) if case.seed % 2 else np.zeros(N)
    widths = {"q": Q, "k": C, "v": C}
    return {
        **rings,
        **{name: rng.standard_normal((R, width)).astype(np.float32) for name, width in widths.items()},
        "lengths": draw_lengths(rng, B, R // B),
        "slopes": slopes.astype(np.float32),
    }


KERNEL = Kernel(
    name="ring_sequence",
    shapes={
        "q": "R Q",
        "k": "R C",
        "v": "R C",
        "t": "B",
        "mode": "B",
        "lengths": "B",
        "slopes": "N",
        "k_ring": "B W C",
        "v_ring": "B W C",
        "o": "R Q",
    },
    outputs=("o",),
    reference=reference,
    bound=bound,
    why="scores' rounding through exp, and the sums'",
    launch=launch,
    tiling=of_attention,
    constants=ring_attention.CONSTANTS,
    inputs=inputs,
    operations=operations,
    cases=(
        Case({"R": 1, "B": 1, "W": 1, "C": 1, "Q": 1, "N": 1}),
        Case({"R": 21, "B": 3, "W": 5, "C": 63, "Q": 63, "N": 3}, seed=1),
        Case({"R": 16, "B": 2, "W": 64, "C": 32, "Q": 128, "N": 4}, seed=2),
        Case({"R": 6, "B": 2, "W": 100, "C": 257, "Q": 257, "N": 1}, seed=3),
        Case({"R": 40, "B": 4, "W": 9, "C": 14, "Q": 42, "N": 6}, seed=4),
        Case({"R": 126, "B": 63, "W": 3, "C": 4, "Q": 8, "N": 2}, seed=5),
    ),
)
