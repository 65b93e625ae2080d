"""One comparison with the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vkcat.kernel import GREATEST, SMALLEST

Array = NDArray[Any]


class Result(Struct, frozen=True):
    """Errors of one tensor. `bound` is the largest absolute error allowed anywhere; each element has its own.

    `max_relative` is over the elements whose reference is not zero. `nmse` is the sum of squared errors over that of
    the squared reference; of an all-zero reference 0 where the output is all zero too, else infinite. `max_ulp` is in
    units of the last place of float32 at the reference, or whole numbers of an integer. Where one is NaN or Inf and the
    other is not the same, all are infinite. `problem` says what failed, empty when nothing did.
    """

    op: str
    case: str
    tensor: str
    max_absolute: float
    max_relative: float
    nmse: float
    max_ulp: float
    bound: float
    why: str
    problem: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem


def compare(op: str, case: str, tensor: str, got: Array, reference: Array, bound: Array, why: str) -> Result:
    """Compare float or integer elements, each with its own bound, in float64; the first that is beyond it is named."""
    wide = got.astype(np.float64)
    expected = reference.astype(np.float64)
    error = _errors(wide, expected)
    outside = ~_within(wide, expected, error, bound)
    problem = ""
    if outside.any():
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(outside)), outside.shape))
        problem = (
            f"{int(outside.sum())} of {outside.size} elements beyond their bound; first at {list(at)}:"
            f" expected {expected[at]:.9g} within {bound[at]:.3g}, got {wide[at]:.9g}"
        )
    # What is the same NaN or Inf has no error, and counts for no size.
    scale = np.where(np.isfinite(expected), np.abs(expected), 0.0)
    sized = (scale > 0) | np.isinf(error)
    return Result(
        op=op,
        case=case,
        tensor=tensor,
        max_absolute=float(error.max()),
        max_relative=float((error[sized] / np.where(scale > 0, scale, 1.0)[sized]).max(initial=0.0)),
        nmse=_nmse(error, scale),
        max_ulp=float((error / _last_place(got.dtype, scale)).max()),
        bound=float(bound.max()),
        why=why,
        problem=problem,
    )


def _errors(got: Array, expected: Array) -> Array:
    """Absolute errors: 0 where both are the same NaN or Inf, infinite where one is and the other is not."""
    with np.errstate(invalid="ignore"):
        error = np.abs(got - expected)
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    return np.where(same, 0.0, np.where(np.isnan(error), np.inf, error))


def _within(got: Array, expected: Array, error: Array, bound: Array) -> Array:
    """Which elements pass. A NaN passes nowhere but where the reference is one, and then nothing else does."""
    finite = np.isfinite(expected)
    near = finite & np.isfinite(got) & (error <= bound)
    # Vulkan lets a device flush what is too small for a normal number, and nothing larger.
    flushed = (got == 0) & (np.abs(expected) < SMALLEST)
    # Within the bound there may be no float32 left but Inf.
    side = np.where(got < 0, -1.0, 1.0)
    with np.errstate(invalid="ignore"):
        overflowed = finite & np.isinf(got) & (side * expected + bound > GREATEST)
    return np.asarray(near | flushed | overflowed | (~finite & (error == 0)))


def _nmse(error: Array, scale: Array) -> float:
    square, power = float(np.sum(error**2)), float(np.sum(scale**2))
    return square / power if power > 0 else (0.0 if square == 0 else float("inf"))


def _last_place(dtype: Any, scale: Array) -> Array:
    """The unit in the last place of numbers of this size; below 2^-126 it is the same for all."""
    if not np.issubdtype(dtype, np.floating):
        return np.ones(scale.shape)
    exponent = np.floor(np.log2(np.clip(scale, SMALLEST, GREATEST)))
    return np.asarray(2.0 ** (exponent - 23))
