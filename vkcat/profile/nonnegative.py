"""Least squares whose coefficients cannot be negative, and which a few bad points do not bend.

Sources: Lawson and Hanson, Solving Least Squares Problems, 1974, chapter 23 (non-negative least squares); Huber, Robust
Estimation of a Location Parameter, Annals of Mathematical Statistics 35, 1964; Holland and Welsch, Robust Regression
Using Iteratively Reweighted Least-Squares, Communications in Statistics A6, 1977 (the factor 1.345).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

HUBER = 1.345
MAD = 1.4826
"""Standard deviation of a normal distribution by its median absolute deviation."""

ROUNDS = 50


def solve(matrix: Array, target: Array) -> Array:
    """x (n) >= 0 with the least |matrix x - target|, for `matrix` (m, n) and `target` (m)."""
    # Columns of one size, so that one tolerance does for all.
    size = np.linalg.norm(matrix, axis=0)
    scaled = matrix / np.where(size > 0, size, 1)
    tolerance = 1e-10 * (1 + float(np.linalg.norm(target)))
    free = np.zeros(scaled.shape[1], bool)
    x = np.zeros(scaled.shape[1])
    for _ in range(3 * scaled.shape[1]):
        descent = scaled.T @ (target - scaled @ x)
        descent[free] = -np.inf
        if descent.max(initial=-np.inf) <= tolerance:
            break
        free[np.argmax(descent)] = True
        x = _inside(scaled, target, x, free)
    return np.asarray(x / np.where(size > 0, size, 1))


def _inside(matrix: Array, target: Array, x: Array, free: NDArray[np.bool_]) -> Array:
    """From x towards the solution of the free columns, as far as none is negative; `free` loses those that end at 0."""
    while True:
        aim = np.zeros_like(x)
        aim[free] = np.linalg.lstsq(matrix[:, free], target, rcond=None)[0]
        leaving = free & (aim <= 0)
        if not leaving.any():
            return aim
        reach = float(np.min(x[leaving] / (x[leaving] - aim[leaving] + np.finfo(float).tiny)))
        x = x + reach * (aim - x)
        free &= x > 1e-14 * np.abs(x).max(initial=1e-300)
        x[~free] = 0


def robust(matrix: Array, target: Array) -> Array:
    """As `solve`, for relative errors of the target, by Huber's loss: beyond 1.345 deviations an error counts linearly,
    not squared."""
    matrix, ones = matrix / target[:, None], np.ones(len(target))
    weights = ones
    x = np.zeros(matrix.shape[1])
    for _ in range(ROUNDS):
        root = np.sqrt(weights)
        before, x = x, solve(matrix * root[:, None], root)
        if np.allclose(before, x, rtol=1e-9, atol=0):
            break
        error = np.abs(matrix @ x - 1)
        limit = HUBER * MAD * float(np.median(error)) + 1e-12
        weights = np.minimum(1, limit / np.maximum(error, 1e-300))
    return x
