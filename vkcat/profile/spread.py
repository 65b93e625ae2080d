"""Median and spread of a series."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct

NOISY = 0.2


class Spread(Struct, frozen=True):
    """Median, 5th and 95th percentile; in microseconds where nothing else is said."""

    median: float
    p5: float
    p95: float

    @property
    def noisy(self) -> bool:
        """Whether 90% of the values are spread over more than 20% of the median."""
        return self.p95 - self.p5 > NOISY * abs(self.median)

    def __str__(self) -> str:
        return f"{self.median:.1f} ({self.p5:.1f} to {self.p95:.1f}){' noisy' if self.noisy else ''}"


def spread(nanoseconds: Sequence[float]) -> Spread:
    """Of times, in microseconds."""
    return quantiles((np.asarray(nanoseconds, np.float64) / 1e3).tolist())


def quantiles(values: Sequence[float]) -> Spread:
    """In the values' own unit."""
    p5, median, p95 = np.percentile(np.asarray(values, np.float64), [5, 50, 95])
    return Spread(float(median), float(p5), float(p95))
