"""short_conv of every step of a sequence at once; see `short_conv` for the equation.

| tensor | shape | dtype |
|---|---|---|
| x, y | (R, C), R = T B; row t B + b is stream b's step t | float32 |
| w | (C, L) | float32 |
| history, history_next | (B, M, C), M = L - 1: the inputs before the first step, and those up to the last | float32 |
| mode | (B) | uint32: 0 hold (history stays), 1 step, 2 restart (history is zero before the first step) |
| lengths | (B) | uint32: how many of the steps are the stream's own; past them, and held, y = 0 |
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.ops import short_conv
from vkcat.ops.rows import check_rows, draw_lengths, idle, of_read, steps_of
from vkcat.tiling import Tiling


def _steps(t: Arrays) -> Iterator[dict[str, Array]]:
    """What a short_conv of each step is given, with what it makes of the history."""
    history = t["history"]
    for own in steps_of(t, "x"):
        now = {**t, **own, "history": history}
        now |= short_conv.reference(now)
        history = now["history_next"]
        yield now


def reference(t: Arrays) -> dict[str, Array]:
    steps = list(_steps(t))
    return {
        "y": np.concatenate([of_read(now["mode"], now["y"]) for now in steps]),
        "history_next": steps[-1]["history_next"],
    }


def bound(t: Arrays) -> dict[str, Array]:
    """short_conv's of each step: what a history holds is copied."""
    errors = [of_read(now["mode"], short_conv.bound(now)["y"]) for now in _steps(t)]
    return {"y": np.concatenate(errors), "history_next": np.zeros(t["history"].shape)}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` when the history is not one shorter than the taps."""
    check_rows("conv_sequence", sizes)
    return short_conv.launch({**sizes, "B": sizes["R"]}, tiling)


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    R, B, C = (case.sizes[name] for name in "RBC")
    streams = short_conv.inputs(rng, case)
    mode, lengths, history = streams["mode"], draw_lengths(rng, B, R // B), streams["history"]
    kept = idle(mode, lengths)
    history[kept] = rng.standard_normal(history[kept].shape)
    x = (case.scale * rng.standard_normal((R, C))).astype(np.float32)
    return {**streams, "x": x, "lengths": lengths}


KERNEL = Kernel(
    name="conv_sequence",
    shapes={
        "x": "R C",
        "w": "C L",
        "history": "B M C",
        "mode": "B",
        "lengths": "B",
        "y": "R C",
        "history_next": "B M C",
    },
    outputs=("y", "history_next"),
    reference=reference,
    bound=bound,
    why=short_conv.KERNEL.why,
    launch=launch,
    inputs=inputs,
    operations=lambda sizes, attributes: sizes["R"] * sizes["C"] * (2 * sizes["L"] + 2),
    cases=(
        Case({"R": 1, "B": 1, "C": 1, "L": 4, "M": 3}),
        Case({"R": 21, "B": 3, "C": 63, "L": 4, "M": 3}, seed=1),
        Case({"R": 300, "B": 100, "C": 3, "L": 4, "M": 3}, seed=2),
        Case({"R": 10, "B": 2, "C": 257, "L": 2, "M": 1}, seed=3),
        Case({"R": 65, "B": 13, "C": 65, "L": 9, "M": 8}, seed=4),
        Case({"R": 35, "B": 5, "C": 65, "L": 4, "M": 3}, seed=5, scale=1e4),
    ),
)
