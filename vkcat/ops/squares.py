"""Sums of squares as float32 has them: of numbers from about 1e19 on they are infinite."""

from __future__ import annotations

import numpy as np

from vkcat.kernel import GREATEST, Array


def sum_of_squares(x: Array, axis: int) -> Array:
    """Over an axis, which stays with length 1; Inf where float32 cannot hold it."""
    total = np.sum(x**2, axis=axis, keepdims=True)
    return np.where(total > GREATEST, np.inf, total)


def mean_square(x: Array, axis: int) -> Array:
    return np.asarray(sum_of_squares(x, axis) / x.shape[axis])


def may_overflow(x: Array, axis: int, relative: Array | float) -> Array:
    """Whether an error of the sum decides if it is infinite."""
    total = np.sum(x**2, axis=axis, keepdims=True)
    return np.asarray((total * (1 + relative) > GREATEST) & (total * (1 - relative) <= GREATEST))
