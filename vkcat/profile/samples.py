"""The single times of a measurement, as its JSON file keeps them and as `--compare` reads them back."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from vkcat import strict_json
from vkcat.errors import InputError, mismatch

BLOCK = 10
"""Rounds of one subject in a row, before the next takes its turn."""

MOST_ROUNDS = 100_000
"""Of one series: comparing resamples each, thousands of times."""

LEAST_US = 0.001

WHOLE_STEP = "step"
CONTROL = "control"
"""In place of a schedule: what no change of vkcat touches, so that a difference in it is the machine's."""


class Series(Struct, frozen=True):
    """Microseconds of one thing in each measured round, in order: a whole step (`name` is "step"), all calls of one
    kernel in a step, or a control."""

    schedule: str
    backend: str
    name: str
    us: list[float]


def series(schedule: str, backend: str, name: str, nanoseconds: list[float]) -> Series:
    """To the nanosecond, and at least one: a coarse clock must not make a time of zero."""
    return Series(schedule, backend, name, [max(round(ns / 1e3, 3), LEAST_US) for ns in nanoseconds])


class Profiled(Struct, frozen=True):
    """What `--compare` needs of a profile's JSON file. `about` says what was measured, and on what."""

    path: str
    run: str
    about: Mapping[str, str]
    series: tuple[Series, ...]


ABOUT = ("model", "graph", "batch", "device", "driver")


def read(selected: str) -> Profiled:
    """A file, or FILE:SCHEDULE for one of its schedules alone, which then is named after no schedule.

    Raises `InputError` when there is no such file or schedule, or it is no profile with samples.
    """
    path, schedule = Path(selected), ""
    if not path.is_file() and ":" in selected:
        name, _, schedule = selected.rpartition(":")
        path = Path(name)
    value = _decoded(path)
    try:
        about = {key: str(value["device"]["name" if key == "device" else key]) for key in ("device", "driver")}
        about = {key: str(value[key]) for key in ABOUT if key not in about} | about
        found = tuple(_series(one) for one in value["samples"])
        run = str(value["run"])
    except (KeyError, TypeError, ValueError) as error:
        expected = "a file of `vkcat profile --json` with samples"
        raise InputError(mismatch(str(path), expected, f"none ({error})", "measure again with this version")) from error
    if not schedule:
        return Profiled(str(path), run, about, found)
    chosen = tuple(Series("", s.backend, s.name, s.us) for s in found if s.schedule == schedule)
    if not chosen:
        names = sorted({s.schedule for s in found} - {CONTROL})
        raise InputError(mismatch(str(path), f"one of {', '.join(names)} after the colon", repr(schedule)))
    return Profiled(selected, run, about, (*chosen, *(s for s in found if s.schedule == CONTROL)))


def _series(value: Mapping[str, Any]) -> Series:
    one = Series(**value)
    if not all(isinstance(name, str) for name in (one.schedule, one.backend, one.name)):
        raise ValueError("a series without names")
    if not isinstance(one.us, list) or len(one.us) > MOST_ROUNDS:
        raise ValueError(f"{one.name}: no list of at most {MOST_ROUNDS} times")
    if not one.us or not all(type(time) in (int, float) and LEAST_US <= time < 1e15 for time in one.us):
        raise ValueError(f"{one.name}: no times above 0")
    return one


def _decoded(path: Path) -> Any:
    try:
        return strict_json.read(path)
    except (OSError, ValueError) as error:
        raise InputError(mismatch("--compare", "two files of `vkcat profile --json`", f"{path}: {error}")) from error
