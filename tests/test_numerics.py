"""Numbers at the ends of float32 and float16: large gates, small and denormal numbers, long sums, wide norms."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numeric_cases import WAYS, Way, each

from vkcat.device.interface import Device
from vkcat.ops import OPS
from vkcat.shader import load
from vkcat.validate.ops import validate_case

Array = np.ndarray[Any, Any]


def _problems(device: Device, way: Way, changes: dict[str, Array]) -> list[str]:
    """What validate says of the way's case with these in place of its own inputs."""
    arrays = way.inputs()
    assert changes.keys() <= arrays.keys()
    kernel = replace(way.kernel, inputs=lambda rng, case: {**arrays, **changes})
    results = validate_case(device, kernel, way.case, {way.shader: load(way.shader)})
    return [f"{result.tensor}: {result.problem}" for result in results if not result.passed]


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
    assert _problems(vulkan_device, way, given) == []


@pytest.mark.parametrize("op", ["linear", "add", "silu", "rms_norm", "gated_norm", "moe_combine", "modulation"])
def test_of_zeros_nothing_may_be_lost(op: str) -> None:
    (way, *_) = WAYS[op]
    arrays = {name: np.zeros(array.shape) for name, array in way.inputs().items()}
    numbers = {name: np.asarray(number) for name, number in way.case.attributes.items()}
    assert all((bound == 0).all() for bound in OPS[op].bound({**arrays, **numbers}).values())
