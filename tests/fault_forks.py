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
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from emulation import RESULTS, Layer
from fault_runs import begin, outcome, whole_run

from vkcat.device.backends import open_device

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


def save(driver: str, state: Path, layer: Layer) -> dict[str, Any]:
    """The state that the others go on from."""
    del layer
    with closing(open_device("kompute", driver)) as device:
        begin(device, state)
    return {}


def count(driver: str, state: Path, result: int, layer: Layer) -> dict[str, Any]:
    """What is right, and how many calls may give this VkResult."""
    layer.arm(result)
    return {"tokens": whole_run("kompute", driver, state), "calls": layer.calls}


def fail(driver: str, state: Path, result: int, n: int, layer: Layer) -> dict[str, Any]:
    """What becomes of a run whose n-th of these calls gives it."""
    layer.arm(result, n)
    return outcome(layer, lambda: whole_run("kompute", driver, state))


def main(driver: str, every: int, results: list[str]) -> None:
    rng = np.random.default_rng()
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder, "state")
        forked(partial(save, driver, state))
        for name in results:
            counted = forked(partial(count, driver, state, RESULTS[name]))
            print(json.dumps({"result": name, **counted}), flush=True)
            for n in range(1 + int(rng.integers(every)), counted["calls"] + 1, every):
                ended = forked(partial(fail, driver, state, RESULTS[name], n))
                print(json.dumps({"result": name, "n": n, **ended}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
