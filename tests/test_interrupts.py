"""A call of a session that is interrupted at any line: the session closes, and begins anew with the same bits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from stream_models import CONFIGS, SAMPLING, stored

import vkcat
from vkcat.device.backends import open_device
from vkcat.device.interface import Device

PACKAGE = str(Path(vkcat.__file__).parent)
MODEL = stored(CONFIGS["gru"])
PROMPT = list(range(40))
MAKING = {
    *("__init__", "own", "own_tensor", "own_sequence", "command_buffer", "bind", "calling", "dispatch", "recording"),
    *("buffer", "get", "_create", "_compile", "_layouts", "_give_memory", "_grow_queries", "_begin_sequence", "_copy"),
}


# Devices of the tests' own: an interruption on a `with` line, which no signal makes, leaves the device's lock held.


@pytest.fixture
def own_device(device: Device) -> Iterator[Device]:
    opened = open_device(device.backend, device.info.name)
    yield opened
    opened.close()


@pytest.fixture
def own_vulkan_device(vulkan_device: Device) -> Iterator[Device]:
    opened = open_device(vulkan_device.backend, vulkan_device.info.name)
    yield opened
    opened.close()


class _Lines:
    """Counts the lines of vkcat that run, some aside, and interrupts at one of them, as a signal's handler does.

    What a device has just made and not yet noted would be left: where that is done is passed over.
    """

    def __init__(self, at: int = -1, *, apart: str = "none") -> None:
        self.count, self._at, self._apart = 0, at, apart

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        del argument
        name = frame.f_code.co_filename
        if not name.startswith(PACKAGE) or name.startswith(self._apart):
            return None
        if name.startswith(f"{PACKAGE}/device") and frame.f_code.co_name in MAKING:
            return None
        if event == "line":
            self.count += 1
            if self.count == self._at:
                raise KeyboardInterrupt
        return self


def _traced(lines: _Lines, work: Callable[[], object]) -> None:
    before = sys.gettrace()
    sys.settrace(lines)
    try:
        work()
    finally:
        sys.settrace(before)


def _bits(session: vkcat.Session) -> tuple[bytes, bytes]:
    session.prefill(PROMPT)
    return session.generate(12, **SAMPLING).tobytes(), session.outputs.tobytes()


def _session(device: Device) -> vkcat.Session:
    """Its submissions take as many steps as they may, however long those take."""
    return vkcat.Session(
        MODEL, device=device, schedule="unrolled" if device.rewrites else "replay", submit_limit_ms=1e9
    )


WORK: dict[str, Callable[[vkcat.Session], object]] = {
    "prefill": lambda session: session.prefill(PROMPT),
    "generate": lambda session: session.generate(9, **SAMPLING),
}


def _interrupt(session: vkcat.Session, work: str, lines: _Lines) -> None:
    with pytest.raises(KeyboardInterrupt):
        _traced(lines, lambda: WORK[work](session))


@pytest.mark.parametrize("work", WORK)
def test_a_session_begins_anew_after_an_interruption(own_device: Device, work: str) -> None:
    session = _session(own_device)
    expected = _bits(session)
    for _ in range(5):
        WORK[work](session)
    lines = _Lines()
    _traced(lines, lambda: WORK[work](session))
    for at in range(1, lines.count, lines.count // 12):
        session.reset()
        session.prefill([1])
        _interrupt(session, work, _Lines(at))
        session.reset()
        assert _bits(session) == expected, at
    session.close()


def test_a_session_goes_on_from_a_state_after_an_interruption(own_vulkan_device: Device, tmp_path: Path) -> None:
    session = _session(own_vulkan_device)
    session.prefill(PROMPT)
    session.save_state(tmp_path / "state")
    expected = session.generate(12, **SAMPLING).tobytes()
    for at in range(20, 300, 40):
        _interrupt(session, "generate", _Lines(at))
        session.load_state(tmp_path / "state")
        assert session.generate(12, **SAMPLING).tobytes() == expected, at
    session.close()


def test_graphs_that_were_not_made_whole_are_made_again(own_vulkan_device: Device) -> None:
    """The first prefill plans and prepares graphs of its own. What a device had just made and not yet noted when it
    was interrupted stays until the process ends: its lines are left out."""
    whole, counted = _session(own_vulkan_device), _session(own_vulkan_device)
    apart = f"{PACKAGE}/device"
    lines = _Lines(apart=apart)
    expected = _bits(whole)
    _traced(lines, lambda: WORK["prefill"](counted))
    for at in range(1, lines.count, lines.count // 9):
        session = _session(own_vulkan_device)
        _interrupt(session, "prefill", _Lines(at, apart=apart))
        session.reset()
        assert _bits(session) == expected, at
        session.close()
    whole.close()
    counted.close()
