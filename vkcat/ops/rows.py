"""What ops over the rows of a sequence share: row t B + b is stream b's step t, of R = T B.

`mode` (B) and `lengths` (B) say what is read: a stream that does not hold reads its first `lengths` steps, and one that
restarts does so at the first of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import Array, Arrays, Sizes
from vkcat.ops.gates import HOLD, RESTART, STEP


def check_rows(name: str, sizes: Sizes) -> None:
    """Raises `ShapeError` unless there are as many rows of each stream."""
    if sizes["R"] % sizes["B"]:
        raise ShapeError(mismatch(f"{name}: rows", f"a multiple of {sizes['B']} streams", sizes["R"]))


def is_read(t: Arrays, step: int) -> Array:
    """(B, 1): which streams the step is read by."""
    return np.asarray((t["mode"] != HOLD) & (step < t["lengths"]))[:, None]


def step_modes(t: Arrays, step: int) -> Array:
    """(B): what the step does to each stream, as the mode of a single step. Only the first may restart."""
    mode = t["mode"] if step == 0 else np.minimum(t["mode"], STEP)
    return np.where(is_read(t, step)[:, 0], mode, HOLD)


def steps_of(t: Arrays, *names: str) -> Iterator[dict[str, Array]]:
    """What a single step's op is given of each step: its rows of `names`, and `mode` (B) as in `step_modes`."""
    streams = len(t["mode"])
    for step in range(len(t[names[0]]) // streams):
        rows = slice(step * streams, (step + 1) * streams)
        yield {**{name: t[name][rows] for name in names}, "mode": step_modes(t, step)}


def of_read(mode: Array, rows: Array) -> Array:
    """A step's rows (B, N), 0 where no stream reads it, by the mode (B) of the step."""
    return np.where((mode == HOLD)[:, None], 0.0, rows)


def idle(mode: Array, lengths: Array) -> Array:
    """(B): which streams would restart, but read nothing. They do not, so there is something to keep."""
    return np.asarray((mode == RESTART) & (lengths == 0))


def draw_lengths(rng: np.random.Generator, streams: int, steps: int) -> Array:
    """Lengths of 0 to all steps; the first stream's are all."""
    lengths = rng.integers(0, steps + 1, streams, dtype=np.uint32)
    lengths[0] = steps
    return lengths
