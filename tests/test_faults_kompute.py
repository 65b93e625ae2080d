"""By Kompute a call that fails may end the process, but never gives outputs that were not computed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import emulation
import pytest
from conftest import DRIVERS, HAS_KOMPUTE, IN_CI
from fault_forks import LONGEST_S

ENDS = ("VK_ERROR_DEVICE_LOST", "VK_TIMEOUT")
"""What submissions and waits give, of which kp takes no notice."""
OTHERS = [result for result in emulation.RESULTS if result not in ENDS]
EVERY = {"lavapipe": (4, 60), "swiftshader": (12, 240)} if IN_CI else {"lavapipe": (8, 0), "swiftshader": (24, 0)}
"""Each so-many-th call fails, others each time: in one of ENDS, and in one of the others, after which some hang."""

pytestmark = [
    pytest.mark.skipif(not HAS_KOMPUTE, reason="kp is not installed"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="each fault is in a process forked from one without Vulkan"),
]


def _run(driver: str, every: int, results: Sequence[str]) -> list[dict[str, Any]]:
    command = [sys.executable, "fault_forks.py", DRIVERS[driver], str(every), *results]
    # Without the validation layer: what kp does with handles that it did not get is known not to be valid.
    environment = {**os.environ, **emulation.variables(), "VK_INSTANCE_LAYERS": emulation.NAME}
    done = subprocess.run(
        command, cwd=Path(__file__).parent, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


@lru_cache(maxsize=None)
def _faults(driver: str) -> list[dict[str, Any]]:
    """What `fault_forks.py` printed of each fault, with the tokens that were right."""
    lines = []
    for every, results in zip(EVERY[driver], (ENDS, OTHERS), strict=True):
        if every:
            lines += _run(driver, every, results)
    (right,) = {tuple(line["tokens"]) for line in lines if "calls" in line}
    return [{"right": list(right), **line} for line in lines if "n" in line]


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_no_outputs_are_given_that_were_not_computed(driver: str) -> None:
    faults = _faults(driver)
    assert len(faults) > 2
    told = [fault for fault in faults if fault.get("exit") == 0]
    assert len(told) > len(faults) / 3
    for fault in told:
        assert fault["error"] is not None or fault["tokens"] == fault["right"], fault


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_what_kp_raises_is_an_error_of_its_kind(driver: str) -> None:
    """For what kp calls unknown a `DeviceError`."""
    for fault in _faults(driver):
        assert "signal" in fault or fault["exit"] == 0, fault
        if fault.get("error") is not None:
            kinds = ("DeviceError",) if fault["result"] not in ENDS else ()
            assert fault["error"] in (*kinds, "OutOfMemoryError", "DeviceLostError", "DeviceTimeoutError"), fault


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_a_lost_device_ends_no_process_once_it_is_open(driver: str) -> None:
    for fault in _faults(driver):
        if fault["result"] == "VK_ERROR_DEVICE_LOST" and fault["n"] > 1:
            assert fault.get("exit") == 0, fault
            assert fault["seconds"] < LONGEST_S, fault
