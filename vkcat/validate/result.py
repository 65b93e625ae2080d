"""One comparison with the reference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Result:
    """Errors of one tensor. `bound` is the largest absolute error allowed anywhere; each element has its own.

    `max_relative` is over the elements whose reference is not zero; `nmse` is the mean square error over the mean
    square of the reference (0 where both are all zero). `problem` says what failed, empty when nothing did.
    """

    op: str
    case: str
    tensor: str
    max_absolute: float
    max_relative: float
    nmse: float
    bound: float
    why: str
    problem: str = ""

    @property
    def passed(self) -> bool:
        return not self.problem


def compare(op: str, case: str, tensor: str, got: Array, reference: Array, bound: Array, why: str) -> Result:
    """Compare float or integer elements; NaN, Inf and elements beyond their own bound are named."""
    wide = got.astype(np.float64)
    expected = reference.astype(np.float64)
    with np.errstate(invalid="ignore"):
        error = np.abs(wide - expected)
    outside = ~(error <= bound)
    problem = ""
    if outside.any():
        at = tuple(int(i) for i in np.unravel_index(int(np.argmax(outside)), outside.shape))
        problem = (
            f"{int(outside.sum())} of {outside.size} elements beyond their bound; first at {list(at)}:"
            f" expected {expected[at]:.9g} within {bound[at]:.3g}, got {wide[at]:.9g}"
        )
    scale = np.abs(expected)
    nonzero = scale > 0
    power = float(np.mean(expected**2))
    square = float(np.mean(error**2))
    return Result(
        op=op,
        case=case,
        tensor=tensor,
        max_absolute=float(error.max()),
        max_relative=float((error[nonzero] / scale[nonzero]).max()) if nonzero.any() else 0.0,
        nmse=square / power if power > 0 else (0.0 if square == 0 else float("inf")),
        bound=float(bound.max()),
        why=why,
        problem=problem,
    )
