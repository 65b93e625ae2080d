"""A step of ring attention on normed input, all but its last product. A fused op.

    q, k, v = W_q n, W_k n, W_v n,  n = rms_norm(x)
    o = softmax(q . k / sqrt(d) - slope * age) v  over the rings, the step's own k and v in them

See vkcat/ops/ring_write.py and vkcat/ops/ring_attention.py for the rings.

| tensor | shape | dtype |
|---|---|---|
| x | (B, D) | float32 |
| gain | (D) | float32 |
| w_q | (Q, D), Q = N d | float32 |
| w_k, w_v | (C, D), C = G d | float32 |
| t, t_next | (B) | uint32: steps so far, kept below 2W |
| mode | (B) | uint32: 0 hold, 1 step, 2 restart |
| slopes | (N) | float32 |
| k_ring, v_ring | (B, W, C) | float32, updated in place |
| o | (B, Q) | float32 |

`eps` is an attribute. The products are made anew for each stream, by one workgroup a group of heads: it pays for a few
streams, whose q, k and v lie in shared memory.
"""

from __future__ import annotations

import numpy as np

from vkcat.composed import composed, composed_operations, run_part
from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import Array, Arrays, Case, Kernel, Launch, Part, Sizes
from vkcat.ops import linear, ring_attention, ring_write, rms_norm
from vkcat.ops.gates import HOLD
from vkcat.tiling import Tiling, of_attention

MOST_STREAMS = 4
MOST_NUMBERS = 2048
"""Of the queries, key and value of a group, as shaders/ring_step.comp has room for."""

PARTS = (
    Part(rms_norm.KERNEL, {"y": "normed"}),
    *(Part(linear.KERNEL, {"x": "normed", "w": f"w_{name}", "y": name}, zeros=("bias",)) for name in "qkv"),
    Part(ring_write.KERNEL),
    Part(ring_attention.KERNEL, {"t": "t_next"}),
)


def numbers_of_a_group(sizes: Sizes) -> int:
    d = sizes["Q"] // sizes["N"]
    heads = sizes["N"] // (sizes["C"] // d)
    return (heads + 2) * d


def fits(sizes: Sizes) -> bool:
    return sizes["B"] <= MOST_STREAMS and numbers_of_a_group(sizes) <= MOST_NUMBERS


def bound(t: Arrays) -> dict[str, Array]:
    """The vectors' errors through attention, where the step's own key and value are the newest entries."""
    values, x_error = dict(t), rms_norm.bound(t)["y"]
    errors = {}
    for part, name in zip(PARTS[:4], ("normed", *"qkv"), strict=True):
        values |= run_part(part, values)
        if name != "normed":
            w, bias = t[f"w_{name}"], np.zeros(len(t[f"w_{name}"]))
            product = linear.bound({**t, "x": values["normed"], "w": w, "bias": bias})["y"]
            errors[name] = product + x_error @ np.abs(w).T
    values |= run_part(PARTS[4], values)
    written = {name: _at_the_newest(t, values["t_next"], errors[name[0]]) for name in ("k_ring", "v_ring")}
    given = {**values, "t": values["t_next"]}
    o = ring_attention.error(given, {"q": errors["q"], **written})
    return {**written, "o": o, "t_next": np.zeros(t["t"].shape)}


def _at_the_newest(t: Arrays, count: Array, error: Array) -> Array:
    """A ring's errors (B, W, C): those of the entry that this step wrote."""
    W = t["k_ring"].shape[1]
    errors = np.zeros(t["k_ring"].shape)
    for b in np.flatnonzero(t["mode"] != HOLD):
        errors[b, (int(count[b]) - 1) % W] = error[b]
    return errors


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` as ring_attention does, and when a group has more numbers than shared memory."""
    ring_attention.launch(sizes, tiling)
    if (numbers := numbers_of_a_group(sizes)) > MOST_NUMBERS:
        expected = f"at most {MOST_NUMBERS} numbers of a group's queries, key and value"
        raise ShapeError(mismatch("ring_step", expected, numbers))
    return Launch(workgroups=(sizes["B"], sizes["C"] // (sizes["Q"] // sizes["N"]), 1))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, D, W, C, Q, N = (case.sizes[name] for name in ("B", "D", "W", "C", "Q", "N"))
    rings = ring_write.inputs(rng, case)
    for b, count in enumerate(rings["t"]):
        # What was never written must not be looked at; NaN could not be told from what is left as it was.
        rings["k_ring"][b, min(count, W) :] = 3e38
        rings["v_ring"][b, min(count, W) :] = 3e38
    slopes = 2.0 ** (-8.0 * np.arange(1, N + 1) / N) if case.seed % 2 else np.zeros(N)
    w = {f"w_{name}": rng.standard_normal((rows, D)) / np.sqrt(D) for name, rows in zip("qkv", (Q, C, C), strict=True)}
    return {
        **rms_norm.inputs(rng, Case({"B": B, "D": D}, scale=case.scale)),
        **{name: array.astype(np.float32) for name, array in w.items()},
        "t": rings["t"],
        "mode": rings["mode"],
        "slopes": slopes.astype(np.float32),
        "k_ring": rings["k_ring"],
        "v_ring": rings["v_ring"],
    }


SHAPES = {
    "x": "B D",
    "gain": "D",
    "w_q": "Q D",
    "w_k": "C D",
    "w_v": "C D",
    "t": "B",
    "mode": "B",
    "slopes": "N",
    "k_ring": "B W C",
    "v_ring": "B W C",
    "o": "B Q",
    "t_next": "B",
}

KERNEL = Kernel(
    name="ring_step",
    shapes=SHAPES,
    outputs=("o", "t_next"),
    updates=("k_ring", "v_ring"),
    reference=composed(PARTS, ("o", "t_next", "k_ring", "v_ring")),
    bound=bound,
    why="the products' rounding through ring_attention's",
    launch=launch,
    tiling=of_attention,
    constants=ring_attention.CONSTANTS,
    inputs=inputs,
    operations=composed_operations(PARTS, SHAPES),
    attributes=("eps",),
    packed=("w_q", "w_k", "w_v"),
    moved=lambda sizes, attributes: dict.fromkeys(("k_ring", "v_ring"), sizes["B"] * (sizes["W"] + 1) * sizes["C"]),
    parts=PARTS,
    fits=fits,
    cases=(
        Case({"B": 2, "D": 1, "W": 1, "C": 1, "Q": 1, "N": 1}, attributes={"eps": 1e-6}),
        Case({"B": 4, "D": 63, "W": 5, "C": 63, "Q": 63, "N": 3}, seed=1, attributes={"eps": 1e-6}),
        Case({"B": 1, "D": 256, "W": 64, "C": 128, "Q": 256, "N": 4}, seed=2, attributes={"eps": 1e-6}),
        Case({"B": 3, "D": 100, "W": 100, "C": 257, "Q": 257, "N": 1}, seed=3, attributes={"eps": 0.1}),
        Case({"B": 4, "D": 65, "W": 70, "C": 14, "Q": 42, "N": 6}, seed=4, attributes={"eps": 1e-6}),
        Case({"B": 4, "D": 20, "W": 3, "C": 300, "Q": 300, "N": 1}, seed=5, scale=1e-3, attributes={"eps": 1e-6}),
    ),
)
