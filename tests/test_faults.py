"""Whatever Vulkan call fails, and however: an error of its kind, everything released, and another device goes on."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

import emulation
import numpy as np
import pytest
from conftest import DRIVERS, IN_CI, MESSAGES
from stream_models import CONFIGS, GRU, NO_LIMIT_MS, config, stored

from vkcat import runner
from vkcat.device.backends import open_device
from vkcat.errors import DeviceError, DeviceLostError, DeviceTimeoutError, OutOfMemoryError
from vkcat.session import Session

KINDS = {
    "VK_ERROR_INITIALIZATION_FAILED": "DeviceError",
    "VK_ERROR_INVALID_SHADER_NV": "DeviceError",
    "VK_ERROR_DEVICE_LOST": "DeviceLostError",
    "VK_TIMEOUT": "DeviceTimeoutError",
}
"""The error that each VkResult becomes; all others say that there is no memory left."""

EVERY = {"lavapipe": 1, "swiftshader": 3} if IN_CI else dict.fromkeys(DRIVERS, 20)
"""Each so-many-th call fails, others each time. SwiftShader's pipelines are slow to make, again for each."""
LONGEST_S = 60


@lru_cache(maxsize=None)
def _runs(driver: str) -> list[dict[str, Any]]:
    """What `fault_runs.py` printed."""
    return emulation.printed("fault_runs.py", "vulkan", DRIVERS[driver], str(EVERY[driver]))


def _faults(driver: str) -> list[dict[str, Any]]:
    faults = [run for run in _runs(driver) if "call" in run]
    assert len(faults) > (600 if EVERY[driver] == 1 else 30)
    return faults


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_every_fault_is_an_error_of_its_kind_or_does_no_harm(driver: str) -> None:
    right = _runs(driver)[0]["tokens"]
    for fault in _faults(driver):
        assert fault["call"], fault
        if fault["error"] is None:
            # A wait at the end that is tried again, or the pipeline cache's file, which is told of.
            assert fault["tokens"] == right, fault
            assert fault["call"] == "vkQueueWaitIdle" or fault["warnings"] == ["VkcatWarning"], fault
        else:
            assert fault["error"] == KINDS.get(fault["result"], "OutOfMemoryError"), fault
            assert fault["result"] in fault["message"] or "no Vulkan" in fault["message"], fault


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_what_ends_a_submission_names_its_last_dispatch(driver: str) -> None:
    ends = ("VK_ERROR_DEVICE_LOST", "VK_TIMEOUT")
    waits = [fault for fault in _faults(driver) if fault["result"] in ends and fault["call"] == "vkWaitForFences"]
    assert waits
    for fault in waits:
        assert "last dispatch linear: " in fault["message"] or "last dispatch last_row: " in fault["message"], fault


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_nothing_is_left_over_or_hangs(driver: str) -> None:
    for fault in _faults(driver):
        assert fault["leaked"] == {}, fault
        assert fault["seconds"] < LONGEST_S, fault
    assert _runs(driver)[-1] == {"alive": {}}


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_another_device_goes_on_from_the_saved_state(driver: str) -> None:
    after = [run["tokens"] for run in _runs(driver) if run.keys() == {"tokens"}]
    assert len(after) > 10
    assert all(tokens == after[0] for tokens in after)


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_what_was_done_after_faults_was_valid(driver: str) -> None:
    """The validation layer stands below the one that makes calls fail, and said nothing."""
    _runs(driver)
    assert MESSAGES is not None
    assert MESSAGES.text() == ""


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The layer in this process, for devices that are opened from now on."""
    for name, value in emulation.variables().items():
        monkeypatch.setenv(name, value)
    driven = emulation.Layer()
    yield driven
    driven.disarm()


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (emulation.RESULTS["VK_ERROR_OUT_OF_HOST_MEMORY"], OutOfMemoryError),
        (emulation.RESULTS["VK_TIMEOUT"], DeviceTimeoutError),
    ],
)
def test_a_session_that_was_cut_short_is_not_gone_on_with(
    device_name: str, layer: emulation.Layer, result: int, kind: Any
) -> None:
    """What it holds is unknown, so nothing may be computed from it."""
    device = open_device("vulkan", device_name)
    session = Session(stored(CONFIGS["gru"]), device=device)
    session.prefill([1, 2])
    layer.arm(result, 1)
    with pytest.raises(kind):
        session.step([3])
    layer.disarm()
    for use in (lambda: session.step([4]), lambda: session.prefill([5, 6]), lambda: session.reset()):
        with pytest.raises(DeviceError, match="go on from a saved state"):
            use()
    session.close()
    again = Session(stored(CONFIGS["gru"]), device=device)
    again.prefill([1, 2])
    again.close()
    device.close()


def test_a_sequence_that_was_cut_short_is_read_anew_or_not_at_all(
    device_name: str, layer: emulation.Layer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its first part was read: reading it once more would read that twice."""
    device = open_device("vulkan", device_name)
    session = Session(stored(CONFIGS["gru"]), device=device)
    tokens = list(range(40))
    right = session.prefill(tokens)
    session.save_state(tmp_path / "state")
    session.close()
    # A graph of more steps is made only where a submission may take as long.
    session = Session(stored(CONFIGS["gru"]), device=device, submit_limit_ms=NO_LIMIT_MS)
    assert session._chunks is not None
    make = session._chunks._make

    def failing(kind: str, steps: int) -> Any:
        if steps > 2:
            # A graph of more steps is made when some have been read, and finds no memory.
            layer.arm(emulation.RESULTS["VK_ERROR_OUT_OF_DEVICE_MEMORY"], 1)
        return make(kind, steps)

    monkeypatch.setattr(session._chunks, "_make", failing)
    with pytest.raises(OutOfMemoryError):
        session.prefill(tokens)
    layer.disarm()
    monkeypatch.setattr(session._chunks, "_make", make)
    with pytest.raises(DeviceError, match="session: expected tokens that were read whole, got some cut short"):
        session.prefill(tokens)
    with pytest.raises(DeviceError, match="reset all streams, or load a state"):
        session.outputs  # noqa: B018
    session.reset()
    np.testing.assert_array_equal(session.prefill(tokens), right)
    session.load_state(tmp_path / "state")
    np.testing.assert_array_equal(session.outputs, right)
    device.close()


def test_a_lost_device_says_so_and_is_not_kept(
    device_name: str, layer: emulation.Layer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is opened by default and kept for all is opened anew."""
    monkeypatch.setattr(runner, "_kept", {})
    model = stored(config([GRU], "plain", norm="none"))
    session = Session(model, device=device_name)
    right = session.prefill([1, 2, 3])
    (lost,) = runner._kept.values()
    layer.arm(emulation.RESULTS["VK_ERROR_DEVICE_LOST"], 1)
    with pytest.raises(DeviceLostError, match="last dispatch linear: expected VK_SUCCESS, got VK_ERROR_DEVICE_LOST"):
        session.step([4])
    layer.disarm()
    with pytest.raises(DeviceLostError, match="expected a device that works, got one that was lost; open it anew"):
        session.step([4])
    session.close()
    again = Session(model, device=device_name)
    np.testing.assert_array_equal(again.prefill([1, 2, 3]), right)
    (kept,) = runner._kept.values()
    assert kept is not lost
    again.close()
    kept.close()
    assert layer.alive() == {}


def test_a_device_that_was_closed_is_not_kept(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a fork, in whose child what was open is closed."""
    monkeypatch.setattr(runner, "_kept", {})
    model = stored(config([GRU], "plain", norm="none"))
    rights = []
    for _ in range(2):
        session = Session(model, device=device_name)
        rights.append(session.prefill([1, 2, 3]))
        session.close()
        (kept,) = runner._kept.values()
        kept.close()
    np.testing.assert_array_equal(*rights)


def test_dispatches_that_nobody_released_go_with_the_device(device_name: str, layer: emulation.Layer) -> None:
    """A session that was never closed: only the device knows what it made, and another's may lie in its place."""
    device = open_device("vulkan", device_name)
    for _ in range(5):
        Session(stored(CONFIGS["gru"]), device=device).prefill([1])
    device.close()
    assert layer.alive() == {}
