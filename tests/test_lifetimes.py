"""What is used after it was closed, closed in any order or left to a forked process."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import weakref
from collections.abc import Callable

import numpy as np
import pytest
from conftest import DRIVERS, HAS_KOMPUTE, MESSAGES, opened

from vkcat.device.interface import Device, Dispatch, Memory, Slice
from vkcat.errors import DeviceError
from vkcat.shader import load

BACKENDS = ["vulkan", pytest.param("kompute", marks=pytest.mark.skipif(not HAS_KOMPUTE, reason="kp is not installed"))]
ORDERS = list(itertools.permutations(["buffers", "dispatch", "recording", "device"]))


def _dispatch(device: Device) -> Dispatch:
    slices = [Slice(device.buffer(256, memory), 0, 256) for memory in (Memory.UPLOAD, Memory.READBACK)]
    return device.dispatch("silu", load("silu"), slices, np.array([1, 4], np.uint32), (), (1, 1, 1))


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_closing_in_any_order_with_work_under_way(backend: str, driver: str) -> None:
    for order in ORDERS[:: 1 if backend == "vulkan" else 4]:
        device = opened(driver, backend)
        dispatch = _dispatch(device)
        recording = device.recording()
        recording.record([dispatch])
        recording.submit()
        ends: dict[str, Callable[[], object]] = {
            "buffers": lambda parts=dispatch.slices: [part.buffer.close() for part in parts],  # type: ignore[misc]
            "dispatch": lambda one=dispatch, on=device: on.release(one),  # type: ignore[misc]
            "recording": recording.close,
            "device": device.close,
        }
        for name in (*order, *order):
            ends[name]()


def test_a_dispatch_that_nobody_holds_keeps_its_identity_until_the_device_ends(device: Device) -> None:
    """The next one might be given it, and with it the place of its descriptors."""
    dispatch = weakref.ref(_dispatch(device))
    gc.collect()
    held = dispatch()
    assert held is not None
    device.release(held)
    for part in held.slices:
        part.buffer.close()


def test_what_was_closed_is_named(device: Device) -> None:
    memories = list(Memory)
    buffers, recording, words = (
        [device.buffer(64, memory) for memory in memories],
        device.recording(),
        np.zeros(16, "u4"),
    )
    for buffer in buffers:
        buffer.close()
    recording.close()
    for buffer in buffers:
        for use in (
            lambda one=buffer: one.read(64),
            lambda one=buffer: one.write(words),
            lambda one=buffer: one.mapped,
        ):  # type: ignore[misc]
            with pytest.raises(DeviceError, match="buffer: expected one that is open on .*, got one that is not"):
                use()
    for use in (lambda: recording.record([]), recording.submit):
        with pytest.raises(DeviceError, match="recording: expected one that is open on"):
            use()
    part = Slice(buffers[0], 0, 64)
    with pytest.raises(DeviceError, match="silu: x: buffer: expected one that is open on"):
        device.dispatch("silu", load("silu"), [part, part], np.array([1, 4], np.uint32), (), (1, 1, 1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_forked_process_leaves_the_device_to_the_one_that_opened_it(backend: str, driver: str) -> None:
    """It can neither use nor harm it, and may leave by os._exit, as those of multiprocessing do."""
    opened(driver, backend).close()
    code = f"""
import os, signal, vkcat
from vkcat.device.layers import active_layers
device = vkcat.open_device({backend!r}, {DRIVERS[driver]!r})
session = vkcat.Session(vkcat.initial_model("gru-l3", seed=1), device=device)
assert {MESSAGES is None} or "khronos_validation" in active_layers()
before = session.prefill([1, 2, 3])
child = os.fork()
if not child:
    signal.alarm(20)
    try:
        session.step([1])
    except vkcat.VkcatError as error:
        assert "expected a device that this process opened, got one from before the fork" in str(error)
        session.close()
        device.close()
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
session.reset()
assert (session.prefill([1, 2, 3]) == before).all()
session.close()
device.close()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
