"""What other processes take of the processor while contenders run: a figure from a busy machine says little."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

_STAT = Path("/proc/stat")
_IDLE = (3, 4)
"""Idle and waiting for a disk, in the order of proc(5); what a hypervisor steals counts as taken."""
_TIMES = 8


class Disturbance:
    """Looks at the system's processor time and at that of the processes that are ours."""

    def __init__(self, ours: Sequence[int]) -> None:
        self._ours = [os.getpid(), *ours]
        self._last = self._now()

    def look(self) -> float | None:
        """The share of all cores' time that others took since the last look; None where the system does not tell."""
        before, self._last = self._last, self._now()
        if before is None or self._last is None:
            return None
        whole, busy, own = (now - then for now, then in zip(self._last, before, strict=True))
        return max(busy - own, 0) / max(whole, 1)

    def _now(self) -> tuple[int, int, int] | None:
        """Ticks since the start: of all cores, of those that were busy, of our processes."""
        if not _STAT.is_file():
            return None
        times = [int(word) for word in _STAT.read_text().split("\n", 1)[0].split()[1 : 1 + _TIMES]]
        idle = sum(times[at] for at in _IDLE)
        return sum(times), sum(times) - idle, sum(_ticks(pid) for pid in self._ours)


def _ticks(pid: int) -> int:
    """User and system time of a process with all its threads; nothing of one that has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    # The name, in parentheses, may have spaces.
    fields = text.rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
