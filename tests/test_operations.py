"""The operations each op states, against those that its reference does, and against contractions by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from counted import Counted, counted

from vkcat.kernel import Case, Kernel
from vkcat.model import build
from vkcat.ops import OPS
from vkcat.ops.gates import STEP
from vkcat.presets import initial_model

CASES = [pytest.param(OPS[name], case, id=f"{name}-{case.name}") for name in OPS for case in OPS[name].cases]

ASIDE: dict[str, Callable[[Mapping[str, int]], int]] = {
    # The reference computes the candidate's rows too, with their sums and sigmoid, and drops them.
    "gru_gates": lambda s: -s["B"] * s["H"] * (2 * (s["I"] + s["H"]) + 2),
    # It sorts where a kernel goes through the experts once for each choice.
    "moe_route": lambda s: s["B"] * s["S"] * s["E"],
    # A head's slope is a bare number there, whose products with the ages are not seen.
    "ring_attention": lambda s: s["B"] * s["N"] * s["W"],
    # The noise is drawn from integers: half a step, a product, two logarithms.
    "sample": lambda s: s["B"] * s["V"] * 4,
}
ASIDE["ring_sequence"] = lambda s: s["R"] * s["N"] * s["W"]
ASIDE["ring_step"], ASIDE["sample_embedding"] = ASIDE["ring_attention"], ASIDE["sample"]
"""What the count of a reference lacks, or has too much."""


def _arrays(kernel: Kernel, case: Case) -> dict[str, Any]:
    """A case at its most work: every stream reads every step, rings are full, each token is drawn."""
    arrays = kernel.inputs(np.random.default_rng(case.seed), case)
    if "mode" in arrays:
        arrays["mode"] = np.full_like(arrays["mode"], STEP)
    if "lengths" in arrays:
        arrays["lengths"] = np.full_like(arrays["lengths"], case.sizes["R"] // case.sizes["B"])
    if kernel.name in ("ring_attention", "ring_step", "ring_sequence"):
        arrays["t"] = np.full_like(arrays["t"], case.sizes["W"])
    if kernel.name in ("sample", "sample_embedding"):
        arrays["temperature"] = np.ones_like(arrays["temperature"])
    wide = {name: array.astype(np.float64) if array.dtype == np.float32 else array for name, array in arrays.items()}
    return {name: counted(_finite(array)) for name, array in wide.items()}


def _finite(array: Any) -> Any:
    return np.nan_to_num(array, posinf=1, neginf=-1) if array.dtype == np.float64 else array


def _one_each(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function of a number that counts as one operation, however it is computed."""

    def once(x: Any) -> Any:
        Counted.total += int(np.size(x))
        return counted(function(np.array(x)))

    return once


def _traced(kernel: Kernel, case: Case, monkeypatch: pytest.MonkeyPatch) -> int:
    arrays = _arrays(kernel, case) | dict(case.attributes)
    arrays |= {name: np.asarray(case.sizes[name]) for name in kernel.free_sizes}
    with monkeypatch.context() as patch:
        for name, module in list(sys.modules.items()):
            if name.startswith("vkcat.ops.") and hasattr(module, "sigmoid"):
                patch.setattr(module, "sigmoid", _one_each(module.sigmoid))
        patch.setattr(np, "asarray", np.asanyarray)
        Counted.total = 0
        kernel.reference(arrays)
        return Counted.total


@pytest.mark.parametrize(("kernel", "case"), CASES)
def test_operations_are_those_of_the_reference(kernel: Kernel, case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    aside = ASIDE.get(kernel.name, lambda sizes: 0)(case.sizes)
    assert kernel.operations(case.sizes, case.attributes) == _traced(kernel, case, monkeypatch) + aside


def _products(formula: str, **lengths: int) -> int:
    """Operations of an einsum formula: two for each point of the space its letters span."""
    return 2 * int(np.prod([lengths[letter] for letter in sorted(set(formula) & set(lengths))]))


@pytest.mark.parametrize(
    ("op", "sizes", "attributes", "products"),
    [
        ("linear", {"B": 3, "N": 500, "K": 400}, {}, _products("bk,nk->bn", b=3, n=500, k=400)),
        (
            "gru_cell",
            {"B": 2, "I": 300, "H": 200},
            {},
            _products("bi,gi->bg", b=2, g=600, i=300) + _products("bh,gh->bg", b=2, g=600, h=200),
        ),
        (
            "ring_attention",
            {"B": 2, "W": 300, "C": 200, "Q": 400, "N": 2},
            {},
            _products("bnd,bwnd->bnw", b=2, n=2, d=200, w=300) + _products("bnw,bwnd->bnd", b=2, n=2, d=200, w=300),
        ),
        (
            "moe_expert",
            {"B": 2, "S": 3, "E": 9, "D": 256, "M": 128},
            {"situ": 0.0},
            _products("bd,smd->bsm", b=2, s=3, m=256, d=256) + _products("bsm,sdm->bsd", b=2, s=3, d=256, m=128),
        ),
        ("mlp", {"B": 2, "D": 256, "M": 128}, {"situ": 1.0}, _products("bd,md->bm", b=2, d=256, m=256)),
        (
            "delta_memory",
            {"B": 2, "R": 200, "P": 400, "V": 200, "N": 2},
            {"bounded": 0.0},
            3 * _products("bnkv,bnk->bnv", b=2, n=2, k=100, v=200)
            + _products("bnkv,bnk->bnkv", b=2, n=2, k=100, v=100),
        ),
    ],
)
def test_products_are_most_of_the_operations(
    op: str, sizes: dict[str, int], attributes: dict[str, float], products: int
) -> None:
    total = OPS[op].operations(sizes, attributes)
    assert products <= total <= 1.06 * products


def test_a_graph_counts_its_nodes() -> None:
    """Three GRU layers of width 256, for two streams."""
    nodes = build(initial_model("gru-l3").config, 2).graphs["tokens"].nodes
    cells = [node.operations for node in nodes if node.kernel.name == "gru_cell"]
    assert cells == [2 * 256 * (6 * 512 + 17)] * 3
