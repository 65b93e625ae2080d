"""The same run again gives the same bits, and opening and closing again and again takes no memory."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from conftest import DRIVERS, IN_CI, LAVAPIPE, SWIFTSHADER, plain_environment
from stream_models import ALL, CONFIGS, SAMPLING, stored

from vkcat.device.interface import Device, Memory
from vkcat.session import Session
from vkcat.stored import StoredModel

STEPS = 200
SMALL, WHOLE = stored(CONFIGS["gru"]), stored(ALL)
PAGES_KIB = 64
"""What a tenth of the cycles may take without being called growth."""

CYCLES = {"devices": 1000, "sessions": 4000, "buffers": 10_000}


def _schedules(device: Device) -> list[str]:
    """A Kompute sequence cannot hold several steps."""
    return ["replay", "unrolled"] if device.rewrites else ["replay"]


def _digest(device: Device, model: StoredModel, schedule: str) -> str:
    """Of what each of 200 steps gives, two thirds of them drawn on the device, and of the last outputs."""
    session = Session(model, batch=2, device=device, schedule=schedule)
    found = hashlib.sha256()
    try:
        found.update(session.prefill(np.arange(2 * 64).reshape(2, 64) % 256).tobytes())
        for at in range(4):
            found.update(session.step([at, 255 - at]).tobytes())
        for tokens in session.tokens(STEPS - 64 - 4, **SAMPLING):
            found.update(tokens.tobytes())
        found.update(session.outputs.tobytes())
    finally:
        session.close()
    return found.hexdigest()


def _soil(device: Device) -> None:
    """Leave memory behind that holds NaN, for whoever is given it next."""
    for nbytes in (1 << 12, 1 << 16, 1 << 20):
        buffer = device.buffer(nbytes, Memory.UPLOAD)
        buffer.write(np.full(nbytes // 4, 0x7FC0DEAD, np.uint32))
        buffer.close()


def _digests(device: Device, model: StoredModel, repeats: int) -> set[str]:
    """In memory that others left, at times with another run beside it on the same device, and by both schedules."""
    found = set()
    schedules = _schedules(device)
    for at in range(repeats):
        _soil(device)
        if at % 10 == 1:
            with ThreadPoolExecutor(2) as both:
                found |= set(both.map(lambda name: _digest(device, model, name), [schedules[0], schedules[-1]]))
        else:
            found.add(_digest(device, model, schedules[at % len(schedules)]))
    return found


def test_a_run_of_200_steps_again_and_again(device: Device) -> None:
    """Fewer times by kompute on SwiftShader, where making each run's pipelines takes longer than the run."""
    slow = device.backend == "kompute" and "SwiftShader" in device.info.name
    repeats = (8 if slow else 100) if IN_CI else 2
    assert len(_digests(device, SMALL, repeats)) == 1


@pytest.mark.long
def test_a_run_of_200_steps_of_every_block_again(device: Device) -> None:
    assert len(_digests(device, WHOLE, 4)) == 1


@pytest.mark.long
@pytest.mark.parametrize("what", CYCLES)
@pytest.mark.parametrize("driver", list(DRIVERS))
def test_opening_and_closing_takes_no_memory(driver: str, what: str) -> None:
    """Of the second half of the cycles, by what the process keeps; without the validation layer, which keeps some."""
    files = os.pathsep.join(str(path) for path in (*LAVAPIPE, SWIFTSHADER))
    done = subprocess.run(
        [sys.executable, "memory_cycles.py", DRIVERS[driver], what, str(CYCLES[what])],
        cwd=Path(__file__).parent,
        env=plain_environment(VK_DRIVER_FILES=files),
        capture_output=True,
        text=True,
        check=True,
    )
    kept = json.loads(done.stdout)
    assert len(kept) == 10
    growths = [later - earlier > PAGES_KIB for earlier, later in pairwise(kept[4:])]
    # Once an allocator may ask for more.
    assert sum(growths) <= 1, kept
