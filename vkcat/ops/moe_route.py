"""Route each token to the S experts of greatest score + bias, ties to the lower index.

    s = sigmoid(logits) or softmax(logits)
    chosen = top S of s + bias                       the bias chooses only
    weight = s / sum of the chosen s   for S > 1;    s itself for S = 1

Sources: Jiang et al., Mixtral of Experts, arXiv 2401.04088 (softmax); DeepSeek-V3, arXiv 2412.19437, section 2.1.2
(sigmoid, the bias that only chooses). For S = 1 a weight made to sum to one would be 1, and the router would get no
gradient. NaN is below every number: of a row of NaN the first S are chosen.

| tensor | shape | dtype |
|---|---|---|
| logits | (B, E) | float32 |
| bias | (E) | float32 |
| index | (B, S), S at most 16 | uint32, below E and different in a row |
| weight | (B, S) | float32 |

`softmax` is an attribute: 1 for softmax, 0 for sigmoid.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from vkcat.errors import ShapeError, mismatch
from vkcat.kernel import SMALLEST, UNIT_ROUNDOFF, Array, Arrays, Case, Kernel, Launch, Sizes
from vkcat.ops.gates import sigmoid, sigmoid_error
from vkcat.tiling import Tiling, of_lanes

MOST = 16


def scores(t: Arrays) -> Array:
    """s of (B, E)."""
    if not t["softmax"]:
        return sigmoid(t["logits"])
    weights = np.exp(t["logits"] - t["logits"].max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def score_operations(experts: int, attributes: Mapping[str, float]) -> int:
    """Floating-point operations of a token's `scores`."""
    return (5 if attributes["softmax"] else 1) * experts


def reference(t: Arrays) -> dict[str, Array]:
    s = scores(t)
    S = int(t["S"])
    # A stable sort of the negated keeps equal ones in the order of their index.
    index = np.argsort(-(s + t["bias"]), axis=1, kind="stable")[:, :S]
    if "chosen_index" in t:
        index = _settled(t, s + t["bias"], index, t["chosen_index"])
    weight = np.take_along_axis(s, index, axis=1)
    if S > 1:
        weight = weight / (weight.sum(axis=1, keepdims=True) + 1e-20)
    return {"index": index.astype(np.uint32), "weight": weight}


def _settled(t: Arrays, ranked: Array, index: Array, chosen: Array) -> Array:
    """`index` with those rows of `chosen` that float32 may have instead; `ranked` (B, E) is what decides."""
    settled, error = index.copy(), _errors(t) + UNIT_ROUNDOFF * np.abs(ranked)
    for b in np.flatnonzero((index != chosen).any(axis=1)):
        inputs = np.stack([t["logits"][b], t["bias"]], axis=1)
        if _is_open(ranked[b], error[b], inputs, chosen[b].astype(np.int64)):
            settled[b] = chosen[b]
    return settled


def _is_open(ranked: Array, error: Array, inputs: Array, chosen: Array) -> bool:
    """Whether each in turn may be the greatest of what is left. Equal inputs (E, 2) tie on any device."""
    left = np.ones(len(ranked), bool)
    for expert in chosen:
        if expert >= len(ranked) or not left[expert]:
            return False
        tied = left & (inputs == inputs[expert]).all(axis=1)
        greatest = (ranked - error)[left].max()
        if np.argmax(tied) != expert or not ranked[expert] + error[expert] >= greatest:
            return False
        left[expert] = False
    return True


def bound(t: Arrays) -> dict[str, Array]:
    """Making the chosen scores sum to one at most doubles their errors."""
    r = reference(t)
    s, error = (np.take_along_axis(of_all, r["index"].astype(np.int64), axis=1) for of_all in (scores(t), _errors(t)))
    if int(t["S"]) > 1:
        total = s.sum(axis=1, keepdims=True) + 1e-20
        error = (error + r["weight"] * error.sum(axis=1, keepdims=True)) / total + 4 * UNIT_ROUNDOFF
    return {"index": np.zeros(s.shape), "weight": error}


def _errors(t: Arrays) -> Array:
    """Bounds on the errors of all scores (B, E)."""
    if not t["softmax"]:
        return sigmoid_error(t["logits"])
    span = np.minimum(t["logits"].max(axis=1) - t["logits"].min(axis=1), 100)[:, None]
    return np.asarray((2 * (3 + 2 * span) + t["logits"].shape[1] + 8) * 2 * UNIT_ROUNDOFF * scores(t) + SMALLEST)


def launch(sizes: Sizes, tiling: Tiling) -> Launch:
    """Raises `ShapeError` when more experts are to be chosen than there are, or than a shader keeps."""
    if not 1 <= sizes["S"] <= min(sizes["E"], MOST):
        raise ShapeError(mismatch("moe_route: S", f"1 to {min(sizes['E'], MOST)} experts a token", sizes["S"]))
    return Launch(invocations=(sizes["B"], 1, 1))


def operations(sizes: Sizes, attributes: Mapping[str, float]) -> int:
    """The scores, the bias, and a comparison an expert for each choice; weights made to sum to one."""
    B, E, S = (sizes[name] for name in "BES")
    return B * (score_operations(E, attributes) + E + S * E + (2 * S + 1 if S > 1 else 0))


def inputs(rng: np.random.Generator, case: Case) -> dict[str, Array]:
    B, E = case.sizes["B"], case.sizes["E"]
    logits = rng.standard_normal((B, E)).astype(np.float32)
    # All equal, and all equal but the last: ties go to the lower index.
    logits[0] = 0.25
    logits[-1, : E - 1] = 0.5
    bias = np.round(rng.standard_normal(E), 1) if case.seed % 2 else np.zeros(E)
    return {"logits": logits, "bias": bias.astype(np.float32)}


_SOFTMAX, _SIGMOID = {"softmax": 1.0}, {"softmax": 0.0}

KERNEL = Kernel(
    name="moe_route",
    shapes={"logits": "B E", "bias": "E", "index": "B S", "weight": "B S"},
    outputs=("index", "weight"),
    choices=("index",),
    attributes=("softmax",),
    reference=reference,
    bound=bound,
    why="exp as Vulkan allows in sigmoid or softmax; an index is exact but where they decide it",
    launch=launch,
    tiling=of_lanes,
    inputs=inputs,
    operations=operations,
    cases=(
        Case({"B": 1, "E": 1, "S": 1}, attributes=_SIGMOID),
        Case({"B": 63, "E": 3, "S": 3}, seed=1, attributes=_SIGMOID),
        Case({"B": 100, "E": 8, "S": 2}, seed=2, attributes=_SOFTMAX),
        Case({"B": 257, "E": 8, "S": 1}, seed=3, attributes=_SOFTMAX),
        Case({"B": 5, "E": 160, "S": 4}, seed=4, attributes=_SIGMOID),
        Case({"B": 7, "E": 100, "S": 3}, seed=5, attributes=_SOFTMAX),
        Case({"B": 9, "E": 5, "S": 1}, seed=7, attributes=_SIGMOID),
    ),
)
