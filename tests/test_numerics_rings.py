"""Rings of no entry, of one, of W, and masked ones; slopes and scores so large that one entry counts alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numeric_cases import Way, each

from vkcat.device.interface import Device
from vkcat.ops.gates import HOLD, RESTART, STEP

Array = np.ndarray[Any, Any]

RINGS = ["ring_attention", "ring_step", "ring_sequence"]


def filled(way: Way, entries: int, mode: int = STEP) -> dict[str, Array]:
    """So many entries in each ring before the step, whose slots before them hold large numbers."""
    arrays = way.inputs()
    rng = np.random.default_rng(11)
    arrays["t"][...] = entries
    for name in ("k_ring", "v_ring"):
        arrays[name][...] = rng.standard_normal(arrays[name].shape)
        arrays[name][:, entries:] = 3e38
    if "mode" in arrays:
        arrays["mode"][...] = mode
    if "lengths" in arrays:
        arrays["lengths"][...] = way.case.sizes["R"] // way.case.sizes["B"]
    return arrays


@each(RINGS)
def test_rings_of_none_to_all_entries(vulkan_device: Device, way: Way) -> None:
    for entries in (0, 1, way.case.sizes["W"] - 1, way.case.sizes["W"]):
        assert np.isfinite(way.checked(vulkan_device, filled(way, entries))["o"]).all()


def by_head(way: Way, values: Array) -> Array:
    """The values (B, C) of an entry as each of N heads has them, (B, Q)."""
    sizes = way.case.sizes
    d = sizes["Q"] // sizes["N"]
    groups = values.reshape(len(values), -1, d)
    return np.repeat(groups, sizes["N"] // groups.shape[1], axis=1).reshape(len(values), -1)


@each(RINGS)
def test_one_entry_is_the_answer(vulkan_device: Device, way: Way) -> None:
    """However large its score: it has all of the weight."""
    arrays = filled(way, 1, HOLD if way.kernel.name == "ring_step" else RESTART)
    if way.kernel.name == "ring_sequence":
        values, rows = arrays["v"], slice(way.case.sizes["B"])
        values, queries = values[rows], "q"
        arrays["lengths"][...] = 1
    else:
        values, rows = arrays["v_ring"][:, 0], slice(None)
        queries = "q" if "q" in arrays else "gain"
    for size in (1.0, 1e4, 1e18):
        arrays[queries] = (arrays[queries] * np.float32(size)).astype(np.float32)
        got = way.checked(vulkan_device, arrays)["o"][rows]
        assert np.allclose(got, by_head(way, values), rtol=1e-6, atol=0)


@pytest.mark.parametrize("slope", [1e4, 1e30, 3e38])
@each(RINGS)
def test_large_slopes_leave_the_newest(vulkan_device: Device, way: Way, slope: float) -> None:
    """Beyond float32 a score is -Inf, and has no weight."""
    arrays = filled(way, way.case.sizes["W"], HOLD if way.kernel.name == "ring_step" else STEP)
    arrays["slopes"][...] = slope
    got = way.checked(vulkan_device, arrays)["o"]
    assert np.isfinite(got).all()
    if way.kernel.name == "ring_sequence":
        assert np.allclose(got, by_head(way, arrays["v"]), rtol=1e-6, atol=0)
    else:
        assert np.allclose(got, by_head(way, arrays["v_ring"][:, -1]), rtol=1e-6, atol=0)


@each(["ring_attention", "ring_step"])
def test_a_ring_of_which_all_is_masked_gives_zeros(device: Device, way: Way) -> None:
    """As an empty one: where every score is -Inf, nothing has a weight. Where one is not, that has all."""
    arrays = filled(way, way.case.sizes["W"], HOLD)
    arrays["k_ring"][...] = -np.inf
    if way.kernel.name == "ring_attention":
        arrays["q"] = np.abs(arrays["q"]) + np.float32(0.1)
    else:
        for name in ("x", "gain", "w_q"):
            arrays[name] = np.abs(arrays[name]) + np.float32(0.1)
    assert (way.run(device, arrays).got["o"] == 0).all()
    arrays["k_ring"][:, 0] = 1.0
    assert np.allclose(way.run(device, arrays).got["o"], by_head(way, arrays["v_ring"][:, 0]), rtol=1e-6, atol=0)


@each(["ring_sequence"])
def test_steps_that_are_not_read_answer_zero(vulkan_device: Device, way: Way) -> None:
    for changes in ({"lengths": 0}, {"mode": HOLD}):
        arrays = filled(way, 3)
        for name, value in changes.items():
            arrays[name][...] = value
        for name in ("q", "k", "v"):
            arrays[name][...] = np.nan
        assert (way.checked(vulkan_device, arrays)["o"] == 0).all()
