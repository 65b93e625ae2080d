"""A change is told from noise: on samples whose truth is known, and through the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from vkcat.cli import cli
from vkcat.profile import bootstrap
from vkcat.profile.compare import FASTER, FEW, NONE, SLOWER, compared
from vkcat.profile.samples import Series

ROUNDS, TRIALS = 200, 150


@pytest.fixture(autouse=True)
def _fewer_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Enough for an interval's ends, and quick."""
    monkeypatch.setattr(bootstrap, "RESAMPLES", 600)


def _series(times: Any) -> Series:
    return Series("replay", "vulkan", "step", times.tolist())


def _noise(rng: np.random.Generator) -> Any:
    """About 10% a round with a long tail above, and 5% that a block of ten rounds shares."""
    shared = np.repeat(rng.normal(0, 0.05, ROUNDS // 10), 10)
    return np.exp(shared + 0.1 * np.abs(rng.normal(0, 1, ROUNDS)) + (rng.random(ROUNDS) < 0.05))


def _verdicts(second: float, *, paired: bool, common: bool = False) -> list[str]:
    """Of many pairs of series whose true ratio is `second`; `common` is a machine of half the speed, now and then."""
    found = []
    for seed in range(TRIALS):
        rng = np.random.default_rng(seed)
        load = np.repeat(rng.choice([1.0, 2.0], ROUNDS // 10), 10) if common else 1.0
        a, b = 100 * load * _noise(rng), 100 * second * load * _noise(rng)
        found.append(compared(_series(a), _series(b), paired=paired).verdict)
    return found


@pytest.mark.parametrize("paired", [False, True])
def test_no_change_is_none_at_about_the_stated_rate(paired: bool) -> None:
    """95% is stated: of 150, more than 17 misses have a probability below 0.1% (binomial)."""
    misses = TRIALS - _verdicts(1.0, paired=paired).count(NONE)
    assert 0 < misses <= 17


@pytest.mark.parametrize("paired", [False, True])
@pytest.mark.parametrize(("ratio", "verdict"), [(1.1, SLOWER), (1 / 1.1, FASTER)])
def test_a_tenth_is_found_in_noise(paired: bool, ratio: float, verdict: str) -> None:
    found = _verdicts(ratio, paired=paired)
    assert found.count(verdict) >= 0.95 * TRIALS
    assert set(found) <= {verdict, NONE}


def test_pairs_see_through_what_both_rounds_had() -> None:
    paired = _verdicts(1.06, paired=True, common=True).count(SLOWER)
    unpaired = _verdicts(1.06, paired=False, common=True).count(SLOWER)
    assert paired > 0.8 * TRIALS
    assert unpaired < paired / 2


def test_the_interval_covers_the_ratio_and_repeats() -> None:
    rng = np.random.default_rng(0)
    a, b = _series(_noise(rng)), _series(3 * _noise(rng))
    change = compared(a, b, paired=False)
    assert change.low < 3 < change.high
    assert change.ratio == np.median(b.us) / np.median(a.us)
    assert change == compared(a, b, paired=False)


def test_a_few_rounds_say_nothing() -> None:
    assert compared(_series(np.full(19, 1.0)), _series(np.full(19, 9.0)), paired=True).verdict == FEW
    assert compared(_series(np.full(20, 1.0)), _series(np.full(20, 9.0)), paired=True).verdict == SLOWER


def _file(path: Path, scale: float = 1.0, **changes: Any) -> str:
    rng = np.random.default_rng(int(1000 * scale))
    names = [("eager", "step"), ("replay", "step"), ("replay", "linear"), ("control", "empty submit")]
    samples = [
        {
            "schedule": schedule,
            "backend": "vulkan",
            "name": name,
            "us": ((1 if schedule == "control" else scale) * _noise(rng)).tolist(),
        }
        for schedule, name in names
    ]
    value = {"run": "1", "model": "m", "graph": "tokens", "batch": 1, "device": {"name": "d", "driver": "r"}}
    path.write_text(json.dumps(value | {"samples": samples} | changes))
    return str(path)


def _compare(*arguments: str) -> Any:
    return CliRunner().invoke(cli, ["profile", "--compare", *arguments])


def test_command(tmp_path: Path) -> None:
    a, b = _file(tmp_path / "a.json"), _file(tmp_path / "b.json", 0.5, run="2", batch=4)
    out = tmp_path / "c.json"
    done = _compare(a, b, "--json", str(out))
    assert done.exit_code == 0, done.output
    assert "batch: 1 in A, 4 in B" in done.output
    value = json.loads(out.read_text())
    verdicts = {(change["schedule"], change["name"]): change["verdict"] for change in value["changes"]}
    assert verdicts.pop(("control", "empty submit")) == NONE
    assert verdicts == dict.fromkeys((("eager", "step"), ("replay", "step"), ("replay", "linear")), FASTER)
    assert not any(change["paired"] for change in value["changes"])
    assert "machine itself" not in done.output


def test_a_changed_machine_is_said(tmp_path: Path) -> None:
    value = json.loads(Path(_file(tmp_path / "a.json")).read_text())
    for one in value["samples"]:
        one["us"] = [2 * time for time in one["us"]]
    b = _file(tmp_path / "b.json", run="2", samples=value["samples"])
    assert "the machine itself differed: empty submit" in _compare(str(tmp_path / "a.json"), b).output


def test_schedules_of_one_file_are_paired(tmp_path: Path) -> None:
    a = _file(tmp_path / "a.json")
    done = _compare(f"{a}:eager", f"{a}:replay", "--json", str(tmp_path / "c.json"))
    assert done.exit_code == 0, done.output
    [change] = json.loads((tmp_path / "c.json").read_text())["changes"]
    assert (change["name"], change["paired"]) == ("step", True)
    assert f"linear: only in {a}:replay" in done.output.replace("\n", "")


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda path: path.unlink(), "expected two files of `vkcat profile --json`"),
        (lambda path: path.write_text("{"), "expected two files of `vkcat profile --json`"),
        (lambda path: path.write_text('{"device": {"name": "d", "driver": "r"}}'), "with samples, got none"),
        (lambda path: path.write_text("[]"), "with samples, got none"),
        (lambda path: _file(path, samples=[{"schedule": "", "backend": "", "name": "x", "us": []}]), "no times above"),
    ],
)
def test_files_that_are_no_profiles(tmp_path: Path, break_it: Callable[[Path], Any], message: str) -> None:
    a, b = _file(tmp_path / "a.json"), tmp_path / "b.json"
    _file(b)
    break_it(b)
    assert message in str(_compare(a, str(b)).exception)


def test_a_schedule_that_is_not_there(tmp_path: Path) -> None:
    a = _file(tmp_path / "a.json")
    assert "expected one of eager, replay after the colon, got 'lazy'" in str(_compare(f"{a}:lazy", a).exception)


@pytest.mark.parametrize(
    ("more", "given"),
    [(["."], "MODEL"), (["--runs", "3"], "--runs"), (["--fit"], "--fit"), (["--schedule", "eager"], "--schedule")],
)
def test_files_alone(tmp_path: Path, more: list[str], given: str) -> None:
    a = _file(tmp_path / "a.json")
    done = _compare(a, a, *more)
    assert done.exit_code == 2
    assert f"expected --compare without {given}" in done.output


def test_a_model_or_files() -> None:
    assert "expected a model, or --compare" in CliRunner().invoke(cli, ["profile"]).output
