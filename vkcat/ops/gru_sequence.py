"""All T steps of a GRU's recurrence in one dispatch, where its state is small; see `gru_recurrence` for the equations.

| tensor | shape | dtype |
|---|---|---|
| x | (R, 3H), R = T B; row t B + b is stream b's step t | float32 |
| h, h_next | (B, H) | float32 |
| w_hh | (3H, H) | float32 |
| b_hh | (3H) | float32 |
| mode | (B) | uint32: 0 hold, 1 step, 2 restart (the first step is from h = 0) |
| lengths | (B) | uint32: how many of the steps are the stream's own; past them h stays |
| y | (R, H): the state after each step | float32 |

One workgroup goes through the steps of some streams, so most of a device is idle: it pays where a step's product is
smaller than the dispatch and barrier that it would cost.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec.structs import replace

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.ops.gru_cell import UNIT_OPERATIONS
from vkcat.ops.gru_recurrence import SHAPES, advanced, advanced_error, inputs
from vkcat.ops.rows import check_rows
from vkcat.tiling import Machine, Tiling, of_products

MOST = 1536
"""Numbers of the states of a workgroup's streams: twice as many are within 16 KiB of shared memory."""


MOST_OF_A_CORE, MOST_OF_A_GPU = 18_000, 200_000
"""Multiply-adds of a workgroup's step beyond which a dispatch for each step is faster: on a software driver as measured
with one and eight streams and 16 to 256 units, on a GPU by what one of its cores reads in a dispatch's time."""


def fits(H: int, tiling: Tiling) -> bool:
    """Whether shared memory holds the states of a workgroup's streams."""
    return tiling.streams * 4 * math.ceil(H / 4) <= MOST


def pays(sizes: Sizes, machine: Machine) -> bool:
    """Whether it is faster than a gru_recurrence a step."""
    streams = tiling(sizes, machine).streams
    return 3 * streams * sizes["H"] ** 2 <= (MOST_OF_A_CORE if machine.cpu else MOST_OF_A_GPU)


def reference(t: Arrays) -> dict[str, Array]:
    states = [t["h"]]
    for step in range(len(t["x"]) // len(t["h"])):
        states.append(advanced({**t, "h": states[-1]}, step))
    return {"y": np.concatenate(states[1:]), "h_next": states[-1]}


def bound(t: Arrays) -> dict[str, Array]:
    """Each step's, with what the state before it was wrong by."""
    h, errors = t["h"], [np.zeros(t["h"].shape)]
    for step in range(len(t["x"]) // len(h)):
        now = {**t, "h": h}
        errors.append(advanced_error(now, step, errors[-1]))
        h = advanced(now, step)
    return {"y": np.concatenate(errors[1:]), "h_next": errors[-1]}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` when shared memory is too small."""
    check_rows("gru_sequence", sizes)
    if not fits(sizes["H"], tiling):
        most = MOST // tiling.streams
        raise ShapeError(mismatch("gru_sequence: H", f"at most {most} with {tiling.streams} streams", sizes["H"]))
    return Launch(workgroups=(1, math.ceil(sizes["B"] / tiling.streams), 1))


def tiling(sizes: Sizes, machine: Machine) -> Tiling:
    """As of any product, but of two streams at most: others go side by side in workgroups of their own."""
    found = of_products(sizes["H"], sizes["B"], 3, machine)
    found = replace(found, streams=min(found.streams, 2))
    return found if fits(sizes["H"], found) else replace(found, streams=1)


KERNEL = Kernel(
    name="gru_sequence",
    shapes=SHAPES,
    outputs=("y", "h_next"),
    reference=reference,
    bound=bound,
    why="the products' rounding through monotone gates, step after step",
    launch=launch,
    inputs=lambda rng, case: {name: array for name, array in inputs(rng, case).items() if name != "y"},
    tiling=tiling,
    operations=lambda sizes, attributes: sizes["R"] * sizes["H"] * (6 * sizes["H"] + 3 + UNIT_OPERATIONS),
    packed=("w_hh",),
    cases=(
        Case({"R": 1, "B": 1, "H": 1}),
        Case({"R": 21, "B": 3, "H": 63}, seed=1),
        Case({"R": 4, "B": 1, "H": 257}, seed=2),
        Case({"R": 65, "B": 13, "H": 65}, seed=3),
        Case({"R": 126, "B": 63, "H": 3}, seed=4),
        Case({"R": 6, "B": 2, "H": 100}, seed=5, scale=1e4),
    ),
)
