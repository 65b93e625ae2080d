"""Numbers at the ends of float32 and float16: large gates, small and denormal numbers, long sums, wide norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numeric_cases import WAYS, Way, each

from vkcat.device.interface import Device
from vkcat.kernel import GREATEST, Case
from vkcat.ops import OPS

Array = np.ndarray[Any, Any]


def _checked(device: Device, way: Way, changes: dict[str, Array]) -> dict[str, Array]:
    """What the way gives of its case with these in place of its own inputs, within the bounds."""
    arrays = way.inputs()
    assert changes.keys() <= arrays.keys()
    return way.checked(device, {**arrays, **changes})


def _numbers(way: Way) -> dict[str, Array]:
    return {name: array for name, array in way.inputs().items() if array.dtype in (np.float32, np.float16)}


NOT_SMALL = ("temperature", "slopes", "a")
SMALL = [op for op, (way, *_) in WAYS.items() if _numbers(way)]


def _small(rng: np.random.Generator, array: Array) -> Array:
    """In turn ordinary, tiny, denormal and zero."""
    exponents = np.choose(rng.integers(0, 4, array.shape), [0, rng.integers(-126, -90, array.shape), -140, -160])
    made = np.where(np.isnan(array), 0.0, array).astype(np.float64) * 2.0 ** (
        exponents + rng.integers(-8, 1, array.shape)
    )
    return made.astype(array.dtype)


@each(SMALL)
def test_small_and_denormal_numbers(vulkan_device: Device, way: Way) -> None:
    """Either they count or they are zero."""
    rng = np.random.default_rng(3)
    given = {name: _small(rng, array) for name, array in _numbers(way).items() if name not in NOT_SMALL}
    _checked(vulkan_device, way, given)


@pytest.mark.parametrize("op", ["linear", "add", "silu", "rms_norm", "gated_norm", "moe_combine", "modulation"])
def test_of_zeros_nothing_may_be_lost(op: str) -> None:
    (way, *_) = WAYS[op]
    arrays = {name: np.zeros(array.shape) for name, array in way.inputs().items()}
    numbers = {name: np.asarray(number) for name, number in way.case.attributes.items()}
    assert all((bound == 0).all() for bound in OPS[op].bound({**arrays, **numbers}).values())


NORMS = ["rms_norm", "gated_norm", "norm_linear", "norm_mlp", "norm_qkv", "norm_gru_cell", "gru_layer", "norm_film"]
NORMS += ["ring_step", "depth_attnres"]


def _normed(way: Way) -> str:
    return "sources" if way.kernel.name == "depth_attnres" else "x"


@pytest.mark.parametrize("size", [1e19, *(pytest.param(size, marks=pytest.mark.long) for size in (1e18, 1e25))])
@each(NORMS)
def test_norms_of_rows_whose_squares_overflow(vulkan_device: Device, way: Way, size: float) -> None:
    """They are 0, and what is made of them is finite; the rows beside them are normed."""
    rng = np.random.default_rng(2)
    name = _normed(way)
    x = way.inputs()[name]
    x[1::2] = (size * rng.uniform(1, 2, x[1::2].shape)).astype(np.float32)
    _checked(vulkan_device, way, {name: x})


@pytest.mark.parametrize("share", [0.999, 1 - 1e-7, 1.0, 1 + 1e-7, 1.001])
def test_at_the_edge_a_row_is_normed_or_zeros(vulkan_device: Device, share: float) -> None:
    (way, *_) = WAYS["rms_norm"]
    x = np.full(way.inputs()["x"].shape, np.sqrt(share * GREATEST / way.case.sizes["D"]), np.float32)
    y = _checked(vulkan_device, way, {"x": x})["y"]
    if abs(share - 1) > 1e-4:
        assert (y != 0).all() == (share < 1)


WIDE = {
    "rms_norm": {"D": 4096},
    "gated_norm": {"P": 4096, "V": 4096},
    "norm_linear": {"N": 5, "K": 4096},
    "norm_mlp": {"D": 4096, "M": 3},
    "norm_qkv": {"D": 4096, "Q": 6, "C": 3},
    "norm_gru_cell": {"I": 4096, "H": 3},
    "norm_film": {"D": 4096, "K": 3},
    "ring_step": {"D": 4096, "W": 3, "C": 4, "Q": 8, "N": 2},
    "depth_attnres": {"J": 3, "D": 4096, "O": 1},
    "activation_stats": {"D": 4096},
}


@pytest.mark.parametrize("op", WIDE)
def test_norms_4096_wide_of_values_near_300(device: Device, op: str) -> None:
    """Squares sum to 3.7e8, of which float32 holds units of 32."""
    (way, *_) = WAYS[op]
    attributes = {**way.case.attributes, **({"at": 2} if op == "depth_attnres" else {})}
    wide = replace(way, case=Case({"B": 3, **WIDE[op]}, seed=9, attributes=attributes))
    x = wide.inputs()[_normed(way)]
    x[...] = 300 + np.random.default_rng(9).standard_normal(x.shape)
    _checked(device, wide, {_normed(way): x})


GATED = {
    "silu": ("x",),
    "mlp": ("x",),
    "norm_mlp": ("gain",),
    "moe_expert": ("x",),
    "gated_norm": ("gate",),
    "gru_cell": ("b_ih", "b_hh"),
    "gru_gates": ("b_ih", "b_hh"),
    "gru_candidate": ("b_ih", "b_hh"),
    "norm_gru_cell": ("b_ih", "b_hh"),
    "gru_layer": ("b_ih", "b_hh"),
    "gru_recurrence": ("x", "b_hh"),
    "gru_sequence": ("x", "b_hh"),
    "short_conv": ("x",),
    "conv_sequence": ("x",),
    "delta_memory": ("z", "beta", "v"),
    "delta_sequence": ("z", "beta"),
    "decay_stats": ("z",),
    "moe_route": ("logits",),
    "moe_stats": ("logits",),
}


@each(GATED)
def test_gates_of_numbers_to_1e4(vulkan_device: Device, way: Way) -> None:
    """None overflows: no output is NaN or Inf, and each is right."""
    rng = np.random.default_rng(4)
    given = way.inputs()
    ends = rng.choice(np.array([-1e4, -100, -1, 0, 1, 100, 1e4]), 64)
    changes = {name: _drawn_from(rng, ends, given[name]) for name in GATED[way.kernel.name]}
    for name, got in _checked(vulkan_device, way, changes).items():
        assert np.isfinite(got).all(), name


def _drawn_from(rng: np.random.Generator, values: Array, like: Array) -> Array:
    return np.asarray(rng.choice(values, like.shape) * rng.uniform(0.5, 1, like.shape)).astype(like.dtype)


PACKED = [op for op, (way, *_) in WAYS.items() if way.kernel.packed and not op.endswith("embedding")]


@pytest.mark.parametrize("op", PACKED)
def test_float16_weights_whose_sums_pass_65504(vulkan_device: Device, op: str) -> None:
    """They are added in float32: finite, and within the bound."""
    way = next(way for way in WAYS[op] if way.case.precision == "float16")
    rng = np.random.default_rng(5)
    given = way.inputs()
    weights = {
        name: np.asarray(rng.uniform(3e4, 65504, given[name].shape) * rng.choice([-1, 1], given[name].shape)).astype(
            np.float16
        )
        for name in way.kernel.packed
    }
    got = _checked(vulkan_device, way, weights)
    assert all(np.isfinite(array).all() for array in got.values())
    if op in ("linear", "norm_linear", "linear_add", "norm_qkv", "moe_expert"):
        assert max(np.abs(array).max() for array in got.values()) > 65504


@pytest.mark.parametrize(("E", "S"), [(3, 1), (3, 3), (160, 1), (160, 16)])
@each(["moe_expert"])
def test_experts_that_get_no_token(vulkan_device: Device, way: Way, E: int, S: int) -> None:
    """Theirs is NaN, and no token sees it; an index beyond the last expert is none of memory's."""
    sizes = {"B": 4, "S": S, "E": E, "D": 9, "M": 5}
    own = replace(way, case=replace(way.case, sizes=sizes))
    given = own.inputs()
    given["index"][...] = E - 1 - np.arange(S)
    for name in ("w_in", "w_out"):
        weights = np.random.default_rng(6).standard_normal(given[name].shape).astype(given[name].dtype)
        weights[: E - S] = np.nan
        given[name] = weights
    y = own.checked(vulkan_device, given)["y"]
    assert np.isfinite(y).all()
    beyond = {**given, "index": given["index"].copy()}
    beyond["index"][:, 0] = E + 1000
    assert own.run(vulkan_device, beyond).got["y"].tobytes() == y.tobytes()
