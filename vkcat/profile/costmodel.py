"""What a submission costs, as a sum of a few things that can be counted.

    time = submit + dispatch n_dispatch + barrier n_barrier + byte n_byte + sum_k operation_k n_operation_k

k is a kernel. No coefficient is negative, and relative errors count, so that a short submission says as much as a long
one. One that is 0 cannot be told from the others by what was measured. What the model is worth is shown by points that
it was not fitted to: other widths, and other numbers of steps in a submission.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray
from rich.table import Table

from vkcat.profile.layout import titled
from vkcat.profile.nonnegative import robust
from vkcat.profile.points import Point, Work

Array = NDArray[np.float64]

TARGET_PERCENT = 15.0

NOTE = (
    "A submission takes the sum of these. Widths and numbers of steps that are unseen had no part in the fit. Things"
    " that grow alike in all that was measured share their cost as it happens: read their sum."
)


class CostModel(Struct, frozen=True):
    """Microseconds: of a submission with its wait, a dispatch, a barrier, 10^6 bytes, and 10^6 operations by kernel."""

    submit_us: float
    dispatch_us: float
    barrier_us: float
    megabyte_us: float
    megaoperation_us: dict[str, float]

    def parts(self, work: Work) -> dict[str, float]:
        """Microseconds of a submission, by what they go to."""
        each = {f"operations of {name}": rate * work.operations.get(name, 0) / 1e6 for name, rate in self._rates()}
        return {
            "submit": self.submit_us,
            "dispatches": self.dispatch_us * work.dispatches,
            "barriers": self.barrier_us * work.barriers,
            "bytes": self.megabyte_us * work.nbytes / 1e6,
            **each,
        }

    def predict(self, work: Work) -> float:
        """Microseconds of a submission."""
        return sum(self.parts(work).values())

    def _rates(self) -> list[tuple[str, float]]:
        return list(self.megaoperation_us.items())


class Errors(Struct, frozen=True):
    """Per cent by which predictions are off: the median, the 90th percentile, the greatest."""

    points: int
    median: float
    p90: float
    greatest: float


class Prediction(Struct, frozen=True):
    label: str
    held_out: bool
    measured_us: float
    predicted_us: float
    error_percent: float


class Fit(Struct, frozen=True):
    """`residual` is of the points the costs were fitted to, `unseen` of those held out. `step_us` are the parts of one
    step of the model itself in a submission of its own."""

    costs: CostModel
    residual: Errors
    unseen: Errors
    step_us: dict[str, float]
    predictions: list[Prediction]


def fitted(points: Sequence[Point]) -> CostModel:
    """By the points that are not held out."""
    seen = [point for point in points if not point.held_out]
    kernels = sorted({name for point in seen for name in point.work.operations})
    rows = [_row(point.work, kernels) for point in seen]
    x = robust(np.array(rows), np.array([point.us for point in seen]))
    operations = dict(zip(kernels, x[4:].tolist(), strict=True))
    return CostModel(float(x[0]), float(x[1]), float(x[2]), float(x[3]), operations)


def _row(work: Work, kernels: Sequence[str]) -> list[float]:
    operations = [work.operations.get(name, 0) / 1e6 for name in kernels]
    return [1.0, work.dispatches, work.barriers, work.nbytes / 1e6, *operations]


def fit(points: Sequence[Point], step: Work) -> Fit:
    """Fit the costs, and hold them against every point; `step` is one step of the model itself."""
    costs = fitted(points)
    predictions = [_prediction(costs, point) for point in points]
    seen, unseen = ([one for one in predictions if one.held_out is held] for held in (False, True))
    return Fit(costs, _errors(seen), _errors(unseen), costs.parts(step), predictions)


def _prediction(costs: CostModel, point: Point) -> Prediction:
    predicted = costs.predict(point.work)
    return Prediction(point.label, point.held_out, point.us, predicted, 100 * (predicted / point.us - 1))


def _errors(predictions: Sequence[Prediction]) -> Errors:
    off = np.abs([one.error_percent for one in predictions])
    median, p90, greatest = np.percentile(off, [50, 90, 100])
    return Errors(len(off), float(median), float(p90), float(greatest))


def verdict(found: Fit) -> str:
    """Whether what was not fitted is predicted as it should be."""
    within = sum(abs(one.error_percent) <= TARGET_PERCENT for one in found.predictions if one.held_out)
    return f"{within} of {found.unseen.points} unseen points are within {TARGET_PERCENT:g}%"


def tables(found: Fit) -> list[Table]:
    costs = found.costs
    coefficients = titled("of", "us", title="fitted costs")
    for name, us in (
        ("submission and wait", costs.submit_us),
        ("dispatch", costs.dispatch_us),
        ("barrier", costs.barrier_us),
        ("10^6 bytes", costs.megabyte_us),
        *((f"10^6 operations of {name}", us) for name, us in costs.megaoperation_us.items()),
    ):
        coefficients.add_row(name, f"{us:.4g}" if us else "0: not to be told from the others")
    whole = sum(found.step_us.values())
    step = titled("of a step", "us", "%", title="a step of the model in a submission of its own, by the fit")
    for name, us in found.step_us.items():
        step.add_row(name, f"{us:.1f}", f"{100 * us / whole:.1f}")
    errors = titled("points", "number", "median", "90th percentile", "greatest", title="error, %")
    for name, error in (("fitted", found.residual), ("unseen", found.unseen)):
        quantiles = (f"{value:.1f}" for value in (error.median, error.p90, error.greatest))
        errors.add_row(name, str(error.points), *quantiles)
    unseen = titled("unseen", "measured, us", "predicted, us", "error, %", title="predictions")
    for one in found.predictions:
        if one.held_out:
            unseen.add_row(one.label, f"{one.measured_us:.1f}", f"{one.predicted_us:.1f}", f"{one.error_percent:+.1f}")
    return [coefficients, step, errors, unseen]


def as_json(found: Fit) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(found)
    return document
