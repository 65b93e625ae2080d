"""How sure a figure is that comes of rounds: a bootstrap over blocks of them, as neighbours in time are alike.

Sources: Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapters 8 and 13; Hesterberg, What Teachers
Should Know About the Bootstrap, The American Statistician 69, 2015 (percentiles expanded for small samples); Abramowitz
and Stegun, Handbook of Mathematical Functions, 26.7.5 (quantiles of t).
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from vkcat.profile.samples import BLOCK

Array = NDArray[np.float64]

RESAMPLES, SEED, CONFIDENCE = 2000, 0, 0.95
MOST_VALUES = 1 << 21


def medians(values: Array, rng: np.random.Generator) -> tuple[Array, int]:
    """(resamples, things) medians of `values` (rounds, things), and how many blocks there are.

    What a round has stays together, and so do its neighbours.
    """
    # At least five blocks, or a resample would often be nearly the series itself.
    block = min(BLOCK, max(len(values) // 5, 1))
    count = len(values) // block
    at = rng.integers(0, count, (RESAMPLES, count))
    # One thing at a time, and of many rounds some resamples, so that memory holds few.
    pieces = np.array_split(at, max(at.size * block // MOST_VALUES, 1))
    things = (thing[: count * block].reshape(count, block) for thing in values.T)
    return np.stack([np.concatenate([_medians(thing[piece]) for piece in pieces]) for thing in things], axis=1), count


def _medians(resamples: Array) -> Array:
    return np.asarray(np.median(resamples.reshape(len(resamples), -1), axis=1))


def interval(resampled: Array, blocks: int) -> tuple[float, float]:
    """Percentiles further out than those of 95%, by Student's t and the variance that few blocks lack."""
    normal, freedom = NormalDist(), max(blocks - 1, 1)
    z = normal.inv_cdf((1 + CONFIDENCE) / 2)
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)
    tail = 100 * normal.cdf(-t * math.sqrt(blocks / freedom))
    low, high = np.percentile(resampled, [tail, 100 - tail])
    return float(low), float(high)
