"""RMSNorm and a GRU step on what it gives: h' = gru_cell(rms_norm(x), h). A fused op.

| tensor | shape | dtype |
|---|---|---|
| x | (B, I) | float32 |
| gain | (I) | float32 |
| h, h_next | (B, H) | float32 |
| w_ih | (3H, I) | float32 |
| w_hh | (3H, H) | float32 |
| b_ih, b_hh | (3H) | float32 |
| mode | (B) | uint32: 0 hold, 1 step, 2 restart, as in gru_cell |

`eps` is an attribute.
"""

from __future__ import annotations

import numpy as np

from vkcat.composed import composed, composed_operations, run_part
from vkcat.kernel import Array, Arrays, Case, Kernel, Part
from vkcat.ops import gru_cell, rms_norm

PARTS = (Part(rms_norm.KERNEL, {"y": "normed"}), Part(gru_cell.KERNEL, {"x": "normed"}))


def bound(t: Arrays) -> dict[str, Array]:
    x = run_part(PARTS[0], t)["normed"]
    return {"h_next": gru_cell.error({**t, "x": x}, rms_norm.bound(t)["y"])}


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    width = Case({"B": case.sizes["B"], "D": case.sizes["I"]}, scale=case.scale)
    return {**gru_cell.inputs(rng, case), **rms_norm.inputs(rng, width)}


SHAPES = {"x": "B I", "gain": "I"} | {name: shape for name, shape in gru_cell.KERNEL.shapes.items() if name != "x"}

KERNEL = Kernel(
    name="norm_gru_cell",
    shapes=SHAPES,
    outputs=("h_next",),
    reference=composed(PARTS, ("h_next",)),
    bound=bound,
    why="gru_cell's, and what the products make of rms_norm's",
    launch=gru_cell.launch,
    inputs=inputs,
    operations=composed_operations(PARTS, SHAPES),
    attributes=("eps",),
    tiling=gru_cell.KERNEL.tiling,
    packed=("w_ih", "w_hh"),
    parts=PARTS,
    cases=(
        Case({"B": 1, "I": 1, "H": 1}, attributes={"eps": 1e-6}),
        Case({"B": 1, "I": 257, "H": 256}, seed=1, attributes={"eps": 1e-6}),
        Case({"B": 3, "I": 63, "H": 65}, seed=2, attributes={"eps": 0.1}),
        Case({"B": 63, "I": 100, "H": 3}, seed=3, attributes={"eps": 1e-6}),
        Case({"B": 9, "I": 4, "H": 100}, seed=4, scale=1e-4, attributes={"eps": 1e-6}),
    ),
)
