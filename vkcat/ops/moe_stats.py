"""Telemetry of a router: how spread each token's scores are, and how many tokens chose each expert.

    p = s / sum s,  s = sigmoid(logits) or softmax(logits)
    entropy = -sum p log p, in nats
    load_e = tokens that chose expert e

| tensor | shape | dtype |
|---|---|---|
| logits | (B, E) | float32 |
| index | (B, S) | uint32, below E |
| mode | (B) | uint32: a held stream (0) chooses nothing |
| entropy | (B) | float32, 0 to log E |
| load | (E) | uint32 |

`softmax` is an attribute, as in `vkcat.ops.moe_route`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vkcat.kernel import UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.ops.gates import GATE_ERROR, HOLD, draw_modes
from vkcat.ops.moe_route import score_operations, scores
from vkcat.tiling import Tiling


def _shares(t: Arrays) -> Array:
    s = scores(t)
    return np.asarray(s / s.sum(axis=1, keepdims=True))


def reference(t: Arrays) -> dict[str, Array]:
    p = _shares(t)
    logs = np.log(np.where(p > 0, p, 1))
    chosen = t["index"][t["mode"] != HOLD].reshape(-1)
    load = np.bincount(chosen, minlength=p.shape[1])
    return {"entropy": -(p * logs).sum(axis=1), "load": load.astype(np.uint32)}


def bound(t: Arrays) -> dict[str, Array]:
    """A share that is off by e moves p log p by (1 + |log p|) e; Vulkan's log has 2^-21 near 1, else 3 units.

    Below e^-80 a float32 share may be zero: what p log p is there is far below the rest.
    """
    p, s, E = _shares(t), scores(t), t["logits"].shape[1]
    span = np.minimum(t["logits"].max(axis=1) - t["logits"].min(axis=1), 100)[:, None]
    relative = (2 * (3 + 2 * span) + 2 * E + 12) * UNIT_ROUNDOFF
    e = relative * p if t["softmax"] else (GATE_ERROR * (1 + p * E)) / s.sum(axis=1, keepdims=True) + 4 * relative * p
    logs = np.abs(np.log(np.maximum(p, 1e-35)))
    each = (1 + logs) * e + p * (2.0**-21 + 6 * UNIT_ROUNDOFF * logs)
    return {"entropy": each.sum(axis=1) + E * UNIT_ROUNDOFF * (p * logs).sum(axis=1), "load": np.zeros(E)}


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    return Launch(invocations=(max(sizes["B"], sizes["E"]), 1, 1))


def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
    """The scores, their shares, and p log p with its sum; counting the load is no floating-point work."""
    B, E = sizes["B"], sizes["E"]
    return B * (score_operations(E, attributes) + 5 * E)


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, E, S = (case.sizes[name] for name in "BES")
    logits = (case.scale * rng.standard_normal((B, E))).astype(np.float32)
    logits[0] = 0.5
    index = np.stack([rng.permutation(E)[:S] for _ in range(B)]).astype(np.uint32)
    return {"logits": logits, "index": index, "mode": draw_modes(rng, B)}


_SOFTMAX, _SIGMOID = {"softmax": 1.0}, {"softmax": 0.0}

KERNEL = Kernel(
    name="moe_stats",
    shapes={"logits": "B E", "index": "B S", "mode": "B", "entropy": "B", "load": "E"},
    outputs=("entropy", "load"),
    attributes=("softmax",),
    reference=reference,
    bound=bound,
    why="moe_route's scores through p log p; a count is exact",
    launch=launch,
    inputs=inputs,
    operations=operations,
    cases=(
        Case({"B": 1, "E": 1, "S": 1}, attributes=_SIGMOID),
        Case({"B": 63, "E": 3, "S": 3}, seed=1, attributes=_SIGMOID),
        Case({"B": 257, "E": 8, "S": 2}, seed=2, attributes=_SOFTMAX),
        Case({"B": 5, "E": 160, "S": 4}, seed=3, attributes=_SIGMOID),
        Case({"B": 7, "E": 100, "S": 1}, seed=4, scale=8, attributes=_SOFTMAX),
    ),
)
