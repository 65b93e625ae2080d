"""Open and close so many times: the process's memory after each tenth, in KiB, as JSON. Run by `test_repeats.py`.

python tests/memory_cycles.py DRIVER WHAT CYCLES
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from stream_models import GRU, config, stored

from vkcat.device.backends import open_device
from vkcat.device.interface import Memory
from vkcat.session import Session


def _kept_kib() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def main(driver: str, what: str, cycles: int) -> None:
    device = open_device("vulkan", driver)
    model = stored(config([GRU], "plain", norm="none"))

    def devices() -> None:
        open_device("vulkan", driver).close()

    def sessions() -> None:
        session = Session(model, device=device)
        session.step([3])
        session.close()

    def buffers() -> None:
        buffer, recording = device.buffer(4096, Memory.UPLOAD), device.recording()
        recording.record([])
        recording.submit()
        recording.wait()
        recording.close()
        buffer.close()

    opens: dict[str, Callable[[], None]] = {"devices": devices, "sessions": sessions, "buffers": buffers}
    kept = []
    for at in range(1, cycles + 1):
        opens[what]()
        if at % (cycles // 10) == 0:
            kept.append(_kept_kib())
    print(json.dumps(kept))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
