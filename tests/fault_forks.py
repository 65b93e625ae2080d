"""As `fault_runs.py`, each fault in a process of its own: by Kompute some calls that fail end the process.

    python tests/fault_forks.py DRIVER EVERY VK_RESULT...

Run by `test_faults_kompute.py`. A line of JSON a fault; "signal" is what ended its process, if anything did.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from emulation import RESULTS, Layer
from fault_runs import MODEL, outcome, whole_run

from vkcat.device.backends import open_device
from vkcat.session import Session

LONGEST_S = 12


def forked(work: Callable[[Layer], Any]) -> dict[str, Any]:
    """What `work` gave in a child, in which nothing of Vulkan is open yet, and how the child ended."""
    receiving, sending = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            # What kp and the loader print of a fault is of no use.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            os.write(sending, json.dumps(work(Layer())).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(sending)
    said = _all_of(receiving)
    if said is None:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    os.close(receiving)
    ended = {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"exit": os.WEXITSTATUS(status)}
    return {**ended, **(json.loads(said) if said else {})}


def _all_of(pipe: int) -> bytes | None:
    """What comes until the other end closes; None when it does not in time."""
    said, deadline = b"", time.monotonic() + LONGEST_S
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while selector.select(deadline - time.monotonic()):
            part = os.read(pipe, 1 << 16)
            if not part:
                return said
            said += part
    return None


def main(driver: str, every: int, results: list[str]) -> None:
    rng = np.random.default_rng()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder, "state")

        def save(_: Layer) -> dict[str, Any]:
            device = open_device("kompute", driver)
            session = Session(MODEL, device=device)
            session.prefill([200, 100])
            session.save_state(state)
            session.close()
            device.close()
            return {}

        def count(layer: Layer, result: int) -> dict[str, Any]:
            layer.arm(result)
            return {"tokens": whole_run("kompute", driver, state), "calls": layer.calls}

        def fail(layer: Layer, result: int, n: int) -> dict[str, Any]:
            layer.arm(result, n)
            return outcome(layer, lambda: whole_run("kompute", driver, state))

        forked(save)
        for name in results:
            result = RESULTS[name]
            counted = forked(lambda layer, result=result: count(layer, result))  # type: ignore[misc]
            print(json.dumps({"result": name, **counted}), flush=True)
            for n in range(1 + int(rng.integers(every)), counted["calls"] + 1, every):
                ended = forked(lambda layer, result=result, n=n: fail(layer, result, n))  # type: ignore[misc]
                print(json.dumps({"result": name, "n": n, **ended}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
