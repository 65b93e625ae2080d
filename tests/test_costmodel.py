"""The cost model finds costs that are known, in noise, and predicts what it has not seen."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import HAS_KOMPUTE

from vkcat.cli import cli
from vkcat.profile import costmodel
from vkcat.profile.nonnegative import robust, solve
from vkcat.profile.points import Point, Work, typical

SUBMIT, DISPATCH, BARRIER, MEGABYTE, LINEAR, GRU = 40.0, 12.0, 2.0, 150.0, 300.0, 700.0


def _by_enumeration(matrix: Any, target: Any) -> float:
    """The least sum of squares of any set of columns whose plain solution is not negative."""
    least = float(target @ target)
    for count in range(1, matrix.shape[1] + 1):
        for chosen in itertools.combinations(range(matrix.shape[1]), count):
            x = np.linalg.lstsq(matrix[:, chosen], target, rcond=None)[0]
            if (x >= 0).all():
                least = min(least, float(np.sum((matrix[:, chosen] @ x - target) ** 2)))
    return least


@pytest.mark.parametrize("seed", range(20))
def test_nonnegative_least_squares_is_the_best_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((12, 5)) * 10.0 ** rng.integers(-6, 6, 5)
    matrix[:, 4] = matrix[:, 3] * (1 + 0.01 * rng.standard_normal(12))
    target = rng.standard_normal(12)
    x = solve(matrix, target)
    assert (x >= 0).all()
    assert np.sum((matrix @ x - target) ** 2) == pytest.approx(_by_enumeration(matrix, target), rel=1e-6)


def test_a_column_of_nothing_has_no_cost() -> None:
    assert solve(np.array([[1.0, 0.0], [2.0, 0.0]]), np.array([3.0, 6.0])).tolist() == pytest.approx([3.0, 0.0])


def test_a_few_bad_points_do_not_bend_the_fit() -> None:
    rng = np.random.default_rng(0)
    matrix = np.stack([np.ones(60), np.arange(1.0, 61.0)], axis=1)
    target = (matrix @ np.array([50.0, 7.0])) * rng.normal(1, 0.02, 60)
    target[-6:] *= 2
    plain = solve(matrix / target[:, None], np.ones(60))
    assert abs(plain[1] / 7 - 1) > 0.03
    assert robust(matrix, target) == pytest.approx([50.0, 7.0], rel=0.03)


def test_slow_rounds_are_divided_out() -> None:
    """Points of 1 to 1000 us in rounds of which each third is slow by three, and one point missed the slow ones."""
    rng = np.random.default_rng(0)
    truth = np.geomspace(1, 1000, 30)
    slow = np.where(np.arange(31) % 3, 1.0, 3.0)
    times = truth[:, None] * slow * rng.lognormal(0, 0.05, (30, 31))
    assert typical(times) == pytest.approx(truth, rel=0.05)
    # Where half of the rounds are slow, a plain median may fall on either side.
    half = truth[:, None] * np.where(np.arange(30) % 2, 1.0, 3.0) * rng.lognormal(0, 0.05, (30, 30))
    found = typical(half) / truth
    assert found.max() / found.min() < 1.1


def _points(noise: float) -> list[Point]:
    """Empty dispatches, and steps of a layer of each kind at five widths, with six numbers in a submission."""
    rng = np.random.default_rng(0)
    work = [(Work(n, b), 1, False) for n in (0, 1, 4, 16, 64) for b in ((0, n) if n else (0,))]
    for width, steps in itertools.product((64, 96, 128, 192, 256), (1, 2, 3, 4, 6, 8)):
        operations = {"linear": 2 * 256 * width, "gru_cell": 12 * width**2}
        step = Work(7, 5, 4 * (256 * width + 6 * width**2), operations)
        work.append((step.times(steps), steps, width in (96, 192) or steps in (3, 6)))
    return [Point("", steps, one, held, _truth(one) * rng.lognormal(0, noise)) for one, steps, held in work]


def _truth(work: Work) -> float:
    operations = LINEAR * work.operations.get("linear", 0) + GRU * work.operations.get("gru_cell", 0)
    fixed = SUBMIT + DISPATCH * work.dispatches + BARRIER * work.barriers
    return fixed + (MEGABYTE * work.nbytes + operations) / 1e6


def test_known_costs_are_found() -> None:
    step = Work(7, 5, 10**6, {"linear": 10**6, "gru_cell": 2 * 10**6})
    found = costmodel.fit(_points(0.0), step)
    costs = found.costs
    assert (costs.submit_us, costs.dispatch_us, costs.barrier_us) == pytest.approx(
        (SUBMIT, DISPATCH, BARRIER), rel=1e-3
    )
    assert found.unseen.greatest < 0.1
    assert found.unseen.points == 18
    assert sum(found.step_us.values()) == pytest.approx(costs.predict(step))


def test_what_was_not_seen_is_predicted_in_noise() -> None:
    found = costmodel.fit(_points(0.08), Work(1, 0))
    assert found.costs.submit_us == pytest.approx(SUBMIT, rel=0.15)
    assert found.costs.dispatch_us == pytest.approx(DISPATCH, rel=0.15)
    worst = max(abs(found.costs.predict(p.work) / _truth(p.work) - 1) for p in _points(0.0) if p.held_out)
    assert worst < 0.15
    assert 1 < found.residual.median < 10
    assert costmodel.verdict(found).endswith("of 18 unseen points are within 15%")


def test_command(device_name: str, g2p: Path, tmp_path: Path) -> None:
    path = tmp_path / "fit.json"
    options = ["--fit", "--runs", "3", "--warmup", "1", "--device", device_name, "--json", str(path)]
    done = CliRunner().invoke(cli, ["profile", str(g2p), *options])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "unseen points are within 15%" in done.output
    value = json.loads(path.read_text())
    assert value["costs"]["submit_us"] >= 0
    assert {"embedding", "gru_cell", "linear", "argmax"} == value["costs"]["megaoperation_us"].keys()
    assert value["unseen"]["points"] == sum(one["held_out"] for one in value["predictions"]) == 24
    assert value["residual"]["points"] == 33


@pytest.mark.skipif(not HAS_KOMPUTE, reason="kp is not installed")
def test_a_backend_that_cannot(device_name: str, g2p: Path) -> None:
    done = CliRunner().invoke(cli, ["profile", str(g2p), "--fit", "--backend", "kompute", "--device", device_name])
    assert "--backend: expected a backend that can put several steps into a submission, got kompute" in str(
        done.exception
    )
