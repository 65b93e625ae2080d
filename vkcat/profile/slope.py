"""Time outside kernels, without timestamps: they cost time themselves.

One step in a submission takes what a submission costs and a step; several in one submission cost that once. So the
slope, (several - one) / (their number - 1), is what a step takes on the device: its kernels, with the dispatches and
barriers between them. What a step takes beyond that is outside: inputs, recording, submit, wait, outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from rich.table import Table

from vkcat.profile.layout import titled
from vkcat.profile.spread import Spread, spread

SEVERAL = 4
ON_DEVICE = "on the device"
"""In place of a schedule: a step as it is in a submission with others."""


class Outside(Struct, frozen=True):
    """Microseconds of a step on the device, by the slope from one to `several` steps in a submission, and outside it;
    per cent of the step. Round by round, so that a single value may be negative."""

    schedule: str
    backend: str
    several: int
    device_us: Spread
    outside_us: Spread
    outside_percent: float


class SlopeProbe:
    """`submission` runs a number of steps in one submission and returns its nanoseconds."""

    def __init__(self, backend: str, submission: Callable[[int], float]) -> None:
        self.backend = backend
        self._submission = submission
        self._slopes: list[float] = []

    def sample(self, count: int) -> None:
        """Time one step and several, `count` times in turn."""
        for _ in range(count):
            one = self._submission(1)
            self._slopes.append((self._submission(SEVERAL) - one) / (SEVERAL - 1))

    def device(self, warmup: int) -> Spread:
        """Microseconds of a step on the device."""
        return spread(self._slopes[warmup:])

    def outside(self, schedule: str, steps: Sequence[float], warmup: int) -> Outside:
        """Of a schedule whose steps, warm-up first, were timed in the same rounds; nanoseconds."""
        whole, device = (np.asarray(times[warmup:], np.float64) for times in (steps, self._slopes))
        beyond: NDArray[np.float64] = whole - device
        percent = 100 * float(np.median(beyond / whole))
        return Outside(schedule, self.backend, SEVERAL, spread(device.tolist()), spread(beyond.tolist()), percent)


def table(found: Sequence[Outside]) -> Table:
    made = titled("schedule", "backend", ON_DEVICE, "outside", "%", title="step without timestamps, us")
    for one in found:
        made.add_row(one.schedule, one.backend, str(one.device_us), str(one.outside_us), f"{one.outside_percent:.1f}")
    return made
