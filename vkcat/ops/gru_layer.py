"""A GRU layer between its norm and its residual: h' = gru_cell(rms_norm(x), h), total = x + h'. A fused op.

| tensor | shape | dtype |
|---|---|---|
| x, h, h_next, total | (B, H) | float32 |
| gain | (H) | float32 |
| w_ih, w_hh | (3H, H) | float32 |
| b_ih, b_hh | (3H) | float32 |
| mode | (B) | uint32: 0 hold, 1 step, 2 restart, as in gru_cell |

`eps` is an attribute.
"""

from __future__ import annotations

import numpy as np

from vkcat.composed import composed, composed_operations
from vkcat.kernel import Array, Arrays, Case, Kernel, Part
from vkcat.ops import add, gru_cell, norm_gru_cell

PARTS = (*norm_gru_cell.PARTS, Part(add.KERNEL, {"a": "x", "b": "h_next", "y": "total"}))

_reference = composed(PARTS, ("h_next", "total"))


def bound(t: Arrays) -> dict[str, Array]:
    after, error = _reference(t)["h_next"], norm_gru_cell.bound(t)["h_next"]
    return {"h_next": error, "total": error + add.bound({"a": np.abs(t["x"]), "b": np.abs(after) + error})["y"]}


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    sizes = {**case.sizes, "I": case.sizes["H"]}
    return norm_gru_cell.inputs(rng, Case(sizes, scale=case.scale))


SHAPES = {
    "x": "B H",
    "gain": "H",
    "h": "B H",
    "w_ih": "3H H",
    "w_hh": "3H H",
    "b_ih": "3H",
    "b_hh": "3H",
    "mode": "B",
    "h_next": "B H",
    "total": "B H",
}

KERNEL = Kernel(
    name="gru_layer",
    shapes=SHAPES,
    outputs=("h_next", "total"),
    reference=_reference,
    bound=bound,
    why="norm_gru_cell's and one rounding",
    launch=gru_cell.launch,
    inputs=inputs,
    operations=composed_operations(PARTS, SHAPES),
    attributes=("eps",),
    tiling=gru_cell.KERNEL.tiling,
    packed=("w_ih", "w_hh"),
    parts=PARTS,
    cases=(
        Case({"B": 1, "H": 1}, attributes={"eps": 1e-6}),
        Case({"B": 1, "H": 257}, seed=1, attributes={"eps": 1e-6}),
        Case({"B": 3, "H": 63}, seed=2, attributes={"eps": 0.1}),
        Case({"B": 63, "H": 3}, seed=3, attributes={"eps": 1e-6}),
        Case({"B": 9, "H": 100}, seed=4, scale=1e-4, attributes={"eps": 1e-6}),
    ),
)
