"""By Kompute a call that fails may end the process, but never gives outputs that were not computed."""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Any

import emulation
import pytest
from conftest import DRIVERS, HAS_KOMPUTE, IN_CI
from fault_forks import LONGEST_S
from test_faults import KINDS

ENDS = ("VK_ERROR_DEVICE_LOST", "VK_TIMEOUT")
"""What submissions and waits give, of which kp takes no notice."""
OTHERS = [result for result in emulation.RESULTS if result not in ENDS]
EVERY = {"lavapipe": (4, 60), "swiftshader": (12, 240)} if IN_CI else {"lavapipe": (8, 0), "swiftshader": (24, 0)}
"""Each so-many-th call fails, others each time: in one of ENDS, and in one of the others, after which some hang."""

pytestmark = [
    pytest.mark.skipif(not HAS_KOMPUTE, reason="kp is not installed"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="each fault is in a process forked from one without Vulkan"),
]


@lru_cache(maxsize=None)
def _faults(driver: str) -> list[dict[str, Any]]:
    """What `fault_forks.py` printed of each fault, with the tokens that were right."""
    lines = []
    for every, results in zip(EVERY[driver], (ENDS, OTHERS), strict=True):
        if every:
            # Without the validation layer: what kp does with handles that it did not get is known not to be valid.
            arguments = (DRIVERS[driver], str(every), *results)
            lines += emulation.printed("fault_forks.py", *arguments, VK_INSTANCE_LAYERS=emulation.NAME)
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
    """A `DeviceError` for what kp calls unknown; what kp does not tell is that a submission did not run."""
    for fault in _faults(driver):
        assert "signal" in fault or fault["exit"] == 0, fault
        if fault.get("error") is not None:
            untold = {"DeviceLostError"} if fault["result"] in ENDS else {"DeviceLostError", "DeviceError"}
            assert fault["error"] in untold | {KINDS.get(fault["result"], "OutOfMemoryError")}, fault


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_a_lost_device_ends_no_process_once_it_is_open(driver: str) -> None:
    for fault in _faults(driver):
        if fault["result"] == "VK_ERROR_DEVICE_LOST" and fault["n"] > 1:
            assert fault.get("exit") == 0, fault
            assert fault["seconds"] < LONGEST_S, fault
