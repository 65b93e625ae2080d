"""NaN and Inf in all that one stream of a session keeps: other streams go on bit by bit, and a reset begins anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stream_models import ALL, SAMPLING, draw_tokens, stored

import vkcat
from vkcat.config import StreamConfig, parse
from vkcat.device.interface import Device
from vkcat.stored import StoredModel

Array = np.ndarray[Any, Any]

STREAM, OTHERS = 1, [0, 2, 3]
PRESETS = ("gru-l3", "gru-l3-delta", "gru-l3-experts", "k3-tiny")
SIZES = {"width": 20, "hidden": 20, "key": 5, "value": 7, "rank": 3, "head_width": 5, "window": 6}
SIZES |= {"experts": 6, "latent": 9, "shared": 13, "max_tokens": 16}


def _small(name: str) -> StoredModel:
    """The blocks of a configuration that ships, at small and awkward sizes."""
    if name == "all":
        return stored(ALL)
    value = json.loads((Path(vkcat.__file__).parent / "configs" / f"{name}.json").read_text())
    for part in (value, *value["blocks"], value["output"]):
        # What is 0 is left out.
        part |= {key: size for key, size in SIZES.items() if part.get(key)}
    made = parse(value)
    assert isinstance(made, StreamConfig)
    return stored(made)


def _states(session: vkcat.Session) -> dict[str, Array]:
    return {name: session._steps.read_state(tensor) for name, tensor in session.model.shared.kept.items()}


def _spoil(session: vkcat.Session) -> None:
    """A third of the numbers of every state of the stream, and the first."""
    rng = np.random.default_rng(5)
    for name, values in _states(session).items():
        if values.dtype == np.float32:
            wrong = rng.choice(np.array([np.nan, np.inf, -np.inf], np.float32), values[STREAM].shape)
            values[STREAM] = np.where(rng.random(wrong.shape) < 0.4, wrong, values[STREAM])
            values[STREAM].reshape(-1)[0] = np.nan
            session._steps.write(session.model.shared.kept[name], values)


def _went_on(session: vkcat.Session, spoiled: bool) -> tuple[Array, Array, dict[str, Array]]:
    """Four streams read, one is spoiled, and they go on: what they drew, their outputs and their states."""
    session.reset()
    session.prefill(draw_tokens(4, 3))
    if spoiled:
        _spoil(session)
    session.prefill(draw_tokens(4, 9, seed=1))
    drawn = session.generate(3, **SAMPLING)
    return drawn, session.outputs, _states(session)


def _begun(session: vkcat.Session) -> tuple[bytes, bytes, bytes]:
    """What the stream gives, from its beginning on."""
    read = session.prefill([[1], draw_tokens(1, 9, seed=2)[0].tolist(), [2], [3]])[STREAM]
    drawn = session.generate(3, **SAMPLING)[STREAM]
    return read.tobytes(), drawn.tobytes(), session.outputs[STREAM].tobytes()


def _check(made: StoredModel, device: Device, chunked: bool = True) -> None:
    """With one session, as making one takes most of the time."""
    session = vkcat.Session(made, batch=4, device=device, chunked=chunked)
    fresh = _begun(session)
    expected, outputs, states = _went_on(session, False)
    drawn, got, kept = _went_on(session, True)
    assert np.isnan(got[STREAM]).all()
    assert (drawn < 256).all(), "a token is there"
    assert drawn[OTHERS].tobytes() == expected[OTHERS].tobytes()
    assert got[OTHERS].tobytes() == outputs[OTHERS].tobytes()
    for name, values in kept.items():
        assert values[OTHERS].tobytes() == states[name][OTHERS].tobytes(), name
    session.reset(STREAM)
    assert _begun(session) == fresh
    assert np.isfinite(session.outputs).all()
    session.close()


@pytest.mark.parametrize("name", PRESETS)
def test_a_spoiled_stream_is_alone(vulkan_device: Device, name: str) -> None:
    _check(_small(name), vulkan_device)


@pytest.mark.long
@pytest.mark.parametrize(("name", "chunked"), [*((name, True) for name in PRESETS), ("all", False)])
def test_a_spoiled_stream_is_alone_on_both_drivers(vulkan_device: Device, name: str, chunked: bool) -> None:
    _check(_small(name), vulkan_device, chunked)


@pytest.mark.long
@pytest.mark.parametrize("name", ["gru-l3-delta"])
def test_a_spoiled_stream_is_alone_by_both_backends(both_backends: list[Device], name: str) -> None:
    for device in both_backends[1:]:
        _check(_small(name), device)


def test_a_spoiled_state_is_saved_as_it_is(vulkan_device: Device, tmp_path: Path) -> None:
    """NaN and Inf go through a file, and a reset after that takes them away."""
    session = vkcat.Session(_small("gru-l3-delta"), batch=4, device=vulkan_device)
    _, _, kept = _went_on(session, True)
    session.save_state(tmp_path / "state")
    session.reset()
    session.load_state(tmp_path / "state")
    assert any(np.isnan(values).any() for values in kept.values())
    for name, values in _states(session).items():
        assert values.tobytes() == kept[name].tobytes(), name
    session.reset(STREAM)
    assert np.isfinite(session.prefill([[], [1, 2], [], []])).all()
    session.close()
