"""NaN and Inf that one stream is given or keeps stay in it, bit by bit, and a reset takes them away: op by op."""

from __future__ import annotations

import numpy as np
import pytest
from numeric_cases import STREAM, WAYS, Array, Way, each

from vkcat.device.interface import Device
from vkcat.ops import OPS
from vkcat.ops.gates import HOLD, RESTART
from vkcat.validate.expected import expectation

KEPT = ("h", "history", "memory", "k_ring", "v_ring")
"""What ops with a mode keep of a stream from step to step."""


def _kept(way: Way) -> list[str]:
    """A history of tokens is none of numbers."""
    names = [name for name in KEPT if name in way.kernel.shapes and "mode" in way.kernel.shapes]
    return [] if "token" in way.kernel.shapes else names


def _given(way: Way, arrays: dict[str, Array]) -> list[str]:
    """Numbers that each stream has of its own; a temperature is the host's to check."""
    floats = [name for name, array in arrays.items() if array.dtype == np.float32 and way.is_of_streams(name)]
    return [name for name in floats if name != "temperature"]


READS_NUMBERS = [op for op, (way, *_) in WAYS.items() if _given(way, way.inputs())]
STATEFUL = [op for op, (way, *_) in WAYS.items() if _kept(way)]
SEQUENCES = [op for op in STATEFUL if "lengths" in OPS[op].shapes]
# Steps replace a ring's entries: these copy, and look at none.
PASSED_ON = [op for op in STATEFUL if op not in ("ring_write", "ring_extend")]


def _spoil(rng: np.random.Generator, array: Array) -> None:
    """Numbers among which every third or so, and the first, are NaN or Inf of either sign."""
    array[...] = rng.standard_normal(array.shape)
    wrong = rng.choice(np.array([np.nan, np.inf, -np.inf], np.float32), array.shape)
    array[...] = np.where(rng.random(array.shape) < 0.4, wrong, array)
    array.reshape(len(array), -1)[:, 0] = np.nan


def _copy(arrays: dict[str, Array]) -> dict[str, Array]:
    return {name: array.copy() for name, array in arrays.items()}


@each(READS_NUMBERS)
def test_what_one_stream_is_given_is_no_others(vulkan_device: Device, way: Way) -> None:
    plain = way.inputs()
    spoiled = _copy(plain)
    for name in _given(way, plain):
        _spoil(np.random.default_rng(7), way.of(name, spoiled[name], STREAM))
    got, expected = (way.run(vulkan_device, arrays).got for arrays in (spoiled, plain))
    compared = 0
    for name in filter(way.is_of_streams, got):
        for stream in way.others:
            compared += way.of(name, got[name], stream).size
            assert way.of(name, got[name], stream).tobytes() == way.of(name, expected[name], stream).tobytes(), name
    assert compared


@pytest.mark.parametrize("value", [np.nan, pytest.param(-np.inf, marks=pytest.mark.long)])
@each(READS_NUMBERS)
def test_one_number_that_is_none(vulkan_device: Device, way: Way, value: float) -> None:
    """Wherever the reference has NaN or Inf because of it, there they are, and nowhere else: none becomes a number."""
    plain = way.inputs()
    for name in _given(way, plain):
        arrays = _copy(plain)
        _newest(way, arrays, name)[...] = value
        ran = way.run(vulkan_device, arrays)
        with np.errstate(invalid="ignore", over="ignore"):
            expected = expectation(ran.node, ran.given, ran.got).values
        for written, got in ran.got.items():
            if got.dtype == np.float32:
                assert (np.isnan(got) == np.isnan(expected[written])).all(), (name, written)
                assert (np.isinf(got) == np.isinf(expected[written])).all(), (name, written)
            else:
                assert (got == expected[written]).all(), (name, written)


def _newest(way: Way, arrays: dict[str, Array], name: str) -> Array:
    """The last number of what the stream is given; of a ring, one of the entry that was written last."""
    if name in ("k_ring", "v_ring"):
        count = max(int(arrays["t"][STREAM]), 1)
        arrays["t"][STREAM] = count
        return arrays[name][STREAM, (count - 1) % arrays[name].shape[1], :1]
    last = way.of(name, arrays[name], STREAM)[-1]
    return last[(-1,) * (last.ndim - 1)][-1:]


@each(PASSED_ON)
def test_nan_in_a_state_stays(vulkan_device: Device, way: Way) -> None:
    """A step does not take it away."""
    arrays = way.inputs()
    for name in _kept(way):
        _spoil(np.random.default_rng(6), arrays[name][STREAM : STREAM + 1])
    got = way.run(vulkan_device, arrays).got
    assert any(np.isnan(way.of(name, array, STREAM)).any() for name, array in got.items() if array.dtype == np.float32)


@each(STATEFUL)
def test_a_restart_forgets_what_there_was(device: Device, way: Way) -> None:
    """From NaN and Inf a stream restarts with the bits of one that had zeros."""
    fresh = way.inputs()
    fresh["mode"][STREAM] = RESTART
    for name in _kept(way):
        fresh[name][STREAM] = 0
    spoiled = _copy(fresh)
    for name in _kept(way):
        _spoil(np.random.default_rng(8), spoiled[name][STREAM : STREAM + 1])
    got, expected = (way.run(device, arrays).got for arrays in (spoiled, fresh))
    for name in filter(way.is_of_streams, got):
        one, other = (way.of(name, made[name], STREAM) for made in (got, expected))
        if name in ("k_ring", "v_ring"):
            # What a ring holds beyond its entries stays, and is never looked at.
            one, other = (ring[:, : int(got["t_next"][STREAM])] for ring in (one, other))
        assert np.isfinite(one).all(), name
        assert one.tobytes() == other.tobytes(), name


def _stays(device: Device, way: Way, changes: dict[str, int]) -> None:
    arrays = way.inputs()
    for name, value in changes.items():
        arrays[name][STREAM] = value
    for name in _kept(way):
        _spoil(np.random.default_rng(9), arrays[name][STREAM : STREAM + 1])
    got = way.run(device, arrays).got
    for name in _kept(way):
        # A candidate's and an attention's states are written by other ops.
        if (after := got.get(name, got.get(f"{name}_next"))) is not None:
            assert after[STREAM].tobytes() == arrays[name][STREAM].tobytes(), name


@each(STATEFUL)
def test_a_held_stream_keeps_even_nan(vulkan_device: Device, way: Way) -> None:
    _stays(vulkan_device, way, {"mode": HOLD})


@each(SEQUENCES)
def test_a_stream_that_restarts_but_reads_nothing_keeps_even_nan(vulkan_device: Device, way: Way) -> None:
    _stays(vulkan_device, way, {"mode": RESTART, "lengths": 0})
