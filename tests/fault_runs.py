"""Every call that can fail fails once: what became of each, a line of JSON a fault. Run by `test_faults.py`.

    python tests/fault_runs.py BACKEND DRIVER EVERY

A process of its own, as a crash or a hang is one of the things that are looked for. With EVERY above 1 only each
so-many-th call fails, others each time this is run. What is released before the device is closed is looked at for each
fourth of them.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
from emulation import RESULTS, Layer
from stream_models import GRU, config, stored

from vkcat.device.backends import open_device
from vkcat.device.interface import Device
from vkcat.errors import VkcatError
from vkcat.session import Session

MODEL = stored(config([GRU], "plain", norm="none"))
PROMPT = [1, 2, 3, 4, 5, 6, 7, 8, 9]


def begin(device: Device, state: Path) -> None:
    """Save the state that the runs go on from."""
    with closing(Session(MODEL, device=device)) as session:
        session.prefill([200, 100])
        session.save_state(state)


def generate(device: Device, state: Path) -> list[int]:
    """Go on from a saved state, and save another."""
    # A Kompute sequence cannot hold several steps.
    schedule = "unrolled" if device.rewrites else "replay"
    # Without a limit that binds, so that every run makes the same calls.
    session = Session(MODEL, device=device, schedule=schedule, submit_limit_ms=60_000)
    try:
        session.load_state(state)
        session.prefill(PROMPT)
        drawn: list[int] = session.generate(4)[0].tolist()
        session.save_state(state.with_name("after"))
        return drawn
    finally:
        session.close()


def whole_run(backend: str, driver: str, state: Path) -> list[int]:
    """From no device to none."""
    device = open_device(backend, driver)
    try:
        return generate(device, state)
    finally:
        device.close()


def outcome(layer: Layer, run: Callable[[], list[int]]) -> dict[str, Any]:
    """How a run ended, and of which objects there are more than before."""
    before = layer.alive()
    ended: dict[str, Any] = {"error": None, "message": "", "tokens": None}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        began = time.monotonic()
        try:
            ended["tokens"] = run()
        except VkcatError as error:
            ended |= {"error": type(error).__name__, "message": str(error)}
        ended["seconds"] = time.monotonic() - began
    ended |= {"call": layer.failed, "warnings": [type(one.message).__name__ for one in warned]}
    layer.disarm()
    alive = layer.alive()
    ended["leaked"] = {kind: count for kind, count in alive.items() if count > before.get(kind, 0)}
    return ended


def main(backend: str, driver: str, every: int) -> None:
    layer = Layer()
    rng = np.random.default_rng()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder, "state")
        device = open_device(backend, driver)
        begin(device, state)
        print(json.dumps({"tokens": generate(device, state)}), flush=True)
        # What the device keeps for the next session is there now.
        runs: dict[str, tuple[Callable[[], list[int]], int]] = {
            "session": (lambda: generate(device, state), 4 * every),
            "device": (lambda: whole_run(backend, driver, state), every),
        }
        for scope, (run, each) in runs.items():
            for name, result in RESULTS.items():
                if scope == "session" and name in ("VK_ERROR_DEVICE_LOST", "VK_ERROR_INITIALIZATION_FAILED"):
                    continue  # the open device would stay lost
                # What the faults before this one had the device make anew is there after a run.
                layer.disarm()
                run()
                layer.arm(result)
                run()
                calls = layer.calls
                for n in range(1 + int(rng.integers(min(each, calls or 1))), calls + 1, each):
                    layer.arm(result, n)
                    ended = outcome(layer, run)
                    print(json.dumps({"scope": scope, "result": name, "n": n, "calls": calls, **ended}), flush=True)
                    if name in ("VK_ERROR_DEVICE_LOST", "VK_TIMEOUT") or n + each > calls:
                        print(json.dumps({"tokens": whole_run(backend, driver, state)}), flush=True)
        device.close()
        print(json.dumps({"alive": layer.alive()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
