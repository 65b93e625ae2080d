"""Indices: ties, NaN, infinite, equal and small numbers, at sizes of 1 to 160; compared by set, with ties known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from vkcat.device.interface import Device
from vkcat.glsl import SUBGROUP
from vkcat.kernel import Case
from vkcat.ops import OPS, moe_route
from vkcat.ops.gates import RESTART, STEP
from vkcat.ops.moe_route import scores
from vkcat.reference import node_inputs
from vkcat.shader import exists, load
from vkcat.validate.expected import expectation
from vkcat.validate.ops import Ran, run_case, validate_case
from vkcat.validate.result import compare

Array = np.ndarray[Any, Any]

EXPERTS = [
    (1, 1),
    (3, 1),
    (3, 3),
    (160, 8),
    *(pytest.param(*sizes, marks=pytest.mark.long) for sizes in ((16, 16), (160, 1))),
]
"""E and S, of which S = E among them."""


def _routed(device: Device, logits: Array, bias: Array, S: int, softmax: float) -> tuple[Array, Array, Ran]:
    case = Case({"B": len(logits), "E": logits.shape[1], "S": S}, attributes={"softmax": softmax})
    ran = run_case(device, OPS["moe_route"], case, {"logits": logits, "bias": bias})
    index = ran.got["index"]
    assert (index < logits.shape[1]).all()
    assert all(len(set(row)) == S for row in index.tolist())
    return index, ran.got["weight"], ran


def _check_weights(ran: Ran) -> None:
    with np.errstate(invalid="ignore"):
        expected = expectation(ran.node, ran.given, ran.got)
    result = compare(
        "moe_route", "", "weight", ran.got["weight"], expected.values["weight"], expected.bounds["weight"], ""
    )
    assert result.problem == ""


def _set_apart(chosen: Array, ranked: Array, error: float) -> bool:
    """Whether these indices are a choice of the greatest, of numbers that are each wrong by up to `error`."""
    rest = np.delete(ranked, chosen)
    return len(rest) == 0 or ranked[chosen].min() >= rest.max() - 2 * error


@pytest.mark.parametrize("softmax", [0.0, 1.0])
@pytest.mark.parametrize(("E", "S"), EXPERTS)
def test_chosen_experts_by_set(device: Device, E: int, S: int, softmax: float) -> None:
    """Fresh logits, many of them tied exactly. A bias chooses; weights are of the scores without it."""
    rng = np.random.default_rng(1000 * E + S)
    logits = np.round(2 * rng.standard_normal((40, E)), 1).astype(np.float32)
    logits[20:] += (1e-3 * rng.standard_normal((20, E))).astype(np.float32)
    bias = np.round(rng.standard_normal(E), 1).astype(np.float32)
    index, weight, _ = _routed(device, logits, bias, S, softmax)
    s = scores({"logits": logits.astype(np.float64), "softmax": softmax})
    ranked = s + bias
    expected = np.argsort(-ranked, axis=1, kind="stable")[:, :S]
    for b, chosen in enumerate(index.astype(np.int64)):
        assert _set_apart(chosen, ranked[b], 1e-6)
        tied = np.isclose(ranked[b][chosen], ranked[b][expected[b]], rtol=0, atol=2e-6).all()
        assert tied, "in the order of the scores"
        own = s[b, chosen]
        own = own / own.sum() if S > 1 else own
        assert np.allclose(weight[b], own, rtol=1e-4, atol=1e-6), "unbiased"


@pytest.mark.parametrize("softmax", [0.0, 1.0])
@pytest.mark.parametrize("value", [0.25, -80.0, 1e4, -1e4])
@pytest.mark.parametrize(("E", "S"), [(3, 1), (3, 3), (160, 4)])
def test_equal_logits_choose_the_lowest_experts(
    vulkan_device: Device, E: int, S: int, value: float, softmax: float
) -> None:
    logits = np.full((3, E), value, np.float32)
    index, weight, ran = _routed(vulkan_device, logits, np.zeros(E, np.float32), S, softmax)
    assert (index == np.arange(S)).all()
    assert np.isfinite(weight).all()
    if softmax or (value > -80 and S > 1):
        assert np.allclose(weight, 1 / S if S > 1 else 1 / E, rtol=1e-5)
    elif value <= -80 and S > 1:
        assert (weight < 1e-14).all(), "what is far below 1e-20 has no weight"
    _check_weights(ran)


def _unusual(rng: np.random.Generator, E: int) -> Array:
    """Rows of numbers among NaN and both Inf, of nothing else, and of each kind alone."""
    logits = rng.standard_normal((24, E)).astype(np.float32)
    kinds = np.array([np.nan, np.inf, -np.inf, 1e-40, -1e-40, 0.0, -0.0, 1e30, -1e30], np.float32)
    logits = np.where(rng.random(logits.shape) < 0.5, rng.choice(kinds, logits.shape), logits).astype(np.float32)
    for row, kind in enumerate(kinds):
        logits[row] = kind
    logits[10, 0] = np.nan
    logits[11] = -np.inf
    logits[11, -1] = np.nan
    logits[12], logits[12, 0] = np.nan, -np.inf
    return logits


@pytest.mark.parametrize("softmax", [0.0, 1.0])
@pytest.mark.parametrize(("E", "S"), EXPERTS)
def test_whatever_logits_hold_experts_are_there(device: Device, E: int, S: int, softmax: float) -> None:
    """NaN is below every number; in a softmax one NaN or +Inf makes all NaN."""
    logits = _unusual(np.random.default_rng(E), E)
    with np.errstate(invalid="ignore"):
        index, _, ran = _routed(device, logits, np.zeros(E, np.float32), S, softmax)
        s = scores({"logits": logits.astype(np.float64), "softmax": softmax})
        expected = np.argsort(-s, axis=1, kind="stable")[:, :S]
    for b, chosen in enumerate(index.astype(np.int64)):
        numbers = int((~np.isnan(s[b])).sum())
        assert np.isnan(s[b, chosen]).sum() == max(0, S - numbers), "NaN only where numbers are too few"
        assert np.array_equal(chosen[numbers:], expected[b, numbers:]), "the lowest of NaN"
        assert np.allclose(s[b, chosen], s[b, expected[b]], rtol=0, atol=1e-6, equal_nan=True)
    _check_weights(ran)


@pytest.mark.parametrize("softmax", [0.0, 1.0])
def test_validate_knows_what_rounding_decides(device: Device, softmax: float) -> None:
    """Logits next to each other, whose scores float32 cannot tell: a device's choice is no fault."""
    rng = np.random.default_rng(0)
    logits = np.float32(5) + rng.integers(0, 16, (40, 20)).astype(np.float32) * np.float32(2.0**-21)
    bias = np.full(20, 100 if softmax else 0, np.float32)
    kernel = replace(OPS["moe_route"], inputs=lambda rng, case: {"logits": logits, "bias": bias})
    case = Case({"B": 40, "E": 20, "S": 3}, attributes={"softmax": softmax})
    assert [result.problem for result in validate_case(device, kernel, case)] == ["", ""]
    index, _, ran = _routed(device, logits, bias, 3, softmax)
    by_float64 = moe_route.reference(node_inputs(ran.node, ran.given))["index"]
    assert (index != by_float64).any(), "there is something to decide"


@pytest.mark.parametrize(
    ("chosen", "settled"),
    [
        ([0, 1], [0, 1]),
        ([1, 0], [1, 0]),
        ([2, 0], [0, 1]),
        ([0, 3], [0, 1]),
        ([0, 0], [0, 1]),
        ([0, 9], [0, 1]),
        ([1, 2], [1, 2]),
        ([1, 4], [0, 1]),
    ],
)
def test_nothing_else_is_left_open(chosen: list[int], settled: list[int]) -> None:
    """Experts 1 and 2 tie exactly, 0 is ahead of them by less than rounding, 3 and 4 are behind."""
    logits = np.array([[1 + 1e-9, 1, 1, 0.5, 0.999]])
    given = {"logits": logits, "bias": np.zeros(5), "softmax": np.asarray(0.0), "S": np.asarray(2)}
    assert moe_route.reference({**given, "chosen_index": np.array([chosen])})["index"].tolist() == [settled]


def _argmax(x: Array) -> Array:
    """Integers in the order of floats, in a plain loop's words: the lowest index of the greatest, NaN below all."""
    ranked = np.where(np.isnan(x), -np.inf, x.astype(np.float64))
    first = [np.flatnonzero((row == row.max()) & ~np.isnan(own)) for row, own in zip(ranked, x, strict=True)]
    return np.array([at[0] if len(at) else 0 for at in first])


def _ways(op: str) -> list[str]:
    return [name for name in (op, f"{op}{SUBGROUP}") if exists(name)]


@pytest.mark.parametrize("shader", _ways("argmax"))
@pytest.mark.parametrize("V", [1, 3, 63, 160, 257])
def test_argmax_of_whatever(vulkan_device: Device, V: int, shader: str) -> None:
    x = _unusual(np.random.default_rng(V), V)
    got = run_case(vulkan_device, OPS["argmax"], Case({"B": len(x), "V": V}), {"x": x}, {shader: load(shader)}).got[
        "index"
    ]
    assert (got < V).all()
    assert (got == _argmax(x)).all()


@pytest.mark.parametrize("shader", _ways("argmax"))
def test_argmax_of_numbers_that_may_be_flushed(vulkan_device: Device, shader: str) -> None:
    """Compared by their bits, so that it matters neither which device nor which invocation looks at them."""
    x = (np.random.default_rng(0).integers(-5, 6, (40, 200)) * 2.0**-149).astype(np.float32)
    got = run_case(vulkan_device, OPS["argmax"], Case({"B": 40, "V": 200}), {"x": x}, {shader: load(shader)}).got[
        "index"
    ]
    assert (got == _argmax(x)).all()


def _drawn(device: Device, op: str, shader: str, logits: Array, temperature: float, top_k: int) -> tuple[Array, Array]:
    B, V = logits.shape
    numbers = {"seed": 3, "top_k": top_k, "mode": STEP, "token": 0, "position": 7}
    arrays = {name: np.full(B, value, np.uint32) for name, value in numbers.items()}
    arrays["mode"][::2] = RESTART
    arrays |= {"stream": np.arange(B, dtype=np.uint32), "history": np.zeros((B, 4), np.uint32)}
    arrays |= {"logits": logits, "temperature": np.full(B, temperature, np.float32)}
    kernel, sizes = OPS[op], {"B": B, "V": V, "M": 4}
    if op == "sample_embedding":
        arrays["table"], sizes = np.arange(5 * V, dtype=np.float32).reshape(V, 5), sizes | {"D": 5}
    given = {name: arrays[name] for name in kernel.shapes if name in arrays}
    ran = run_case(device, kernel, Case(sizes), given, {shader: load(shader)})
    token = ran.got["token"]
    assert (token < V).all()
    if op == "sample_embedding":
        assert (ran.got["y"] == arrays["table"][token]).all()
    return token, OPS["sample"].reference({**given, "logits": logits.astype(np.float64)})["token"]


SAMPLERS = [
    pytest.param(op, shader, id=shader, marks=[] if SUBGROUP in shader else [pytest.mark.long])
    for op in ("sample", "sample_embedding")
    for shader in _ways(op)
]


@pytest.mark.parametrize(("op", "shader"), SAMPLERS)
@pytest.mark.parametrize("V", [1, 3, 160])
def test_greedy_tokens_of_whatever(vulkan_device: Device, V: int, op: str, shader: str) -> None:
    logits = _unusual(np.random.default_rng(V + 1), V)
    for top_k in (0, 1, V):
        token, _ = _drawn(vulkan_device, op, shader, logits, 0.0, top_k)
        assert (token == _argmax(logits)).all()


@pytest.mark.parametrize(("op", "shader"), SAMPLERS)
@pytest.mark.parametrize("top_k", [0, 1, 3, 40])
def test_equal_logits_are_drawn_as_the_noise_says(vulkan_device: Device, top_k: int, op: str, shader: str) -> None:
    """Of equal ones the lowest `top_k` are drawn from, each sooner or later."""
    token, expected = _drawn(vulkan_device, op, shader, np.full((400, 40), 0.25, np.float32), 1.0, top_k)
    # Two variates of a row that are nearer to each other than float32 tells: none among these.
    assert (token == expected).all()
    assert set(token.tolist()) == set(range(top_k or 40))


@pytest.mark.parametrize(("op", "shader"), SAMPLERS)
@pytest.mark.parametrize("top_k", [0, 1, 2, 5])
def test_tokens_are_drawn_from_numbers(vulkan_device: Device, top_k: int, op: str, shader: str) -> None:
    """With NaN, both Inf and denormal logits a token is there; it is NaN's only where there is nothing else."""
    logits = _unusual(np.random.default_rng(top_k), 63)
    token, expected = _drawn(vulkan_device, op, shader, logits, 0.7, top_k)
    assert (token == expected).all()
    of_nan = np.isnan(logits[np.arange(len(logits)), token])
    assert (of_nan == np.isnan(logits).all(axis=1)).all()
