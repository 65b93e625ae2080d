"""Two profiles against each other: which differences are a change, and which are noise.

The ratio is that of the medians, B over A; when both were measured in one run, where they took turns, the median of the
rounds' own ratios.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
from msgspec import Struct
from rich.table import Table

from vkcat.profile.bootstrap import SEED, interval, medians
from vkcat.profile.layout import titled
from vkcat.profile.samples import CONTROL, WHOLE_STEP, Profiled, Series

LEAST = 20
"""Rounds below which nothing is said."""

NOTE = (
    "B / A: the ratio of the medians; paired, in one run, the median of the rounds' ratios. The interval is a bootstrap"
    " over blocks of rounds: one in twenty misses by chance. It knows the noise within a run; what differs from one run"
    " to the next it does not, but for the controls, which no change of vkcat touches."
)

FASTER, SLOWER, NONE, FEW = "faster", "slower", "no difference", "too few rounds"


class Change(Struct, frozen=True):
    """B's time over A's with its 95% interval; `paired` when round by round."""

    schedule: str
    backend: str
    name: str
    a_us: float
    b_us: float
    ratio: float
    low: float
    high: float
    paired: bool
    verdict: str


class Comparison(Struct, frozen=True):
    """`unlike` says what else differs; `alone` names what only one has."""

    a: str
    b: str
    unlike: list[str]
    changes: list[Change]
    alone: list[str]


def compared(a: Series, b: Series, *, paired: bool) -> Change:
    """One thing, in both. Rounds beyond those that both have do not count when paired."""
    first, second = np.asarray(a.us), np.asarray(b.us)
    rng = np.random.default_rng(SEED)
    if paired:
        count = min(len(first), len(second))
        ratios = second[:count] / first[:count]
        ratio, (resampled, blocks) = np.median(ratios), medians(ratios[:, None], rng)
    else:
        ratio = np.median(second) / np.median(first)
        (below, m), (above, n) = medians(first[:, None], rng), medians(second[:, None], rng)
        resampled, blocks = above / below, min(m, n)
    low, high = interval(resampled, blocks)
    few = min(len(first), len(second)) < LEAST
    verdict = FEW if few else FASTER if high < 1 else SLOWER if low > 1 else NONE
    times = float(np.median(first)), float(np.median(second))
    return Change(b.schedule, b.backend, b.name, *times, float(ratio), low, high, paired, verdict)


def compare(a: Profiled, b: Profiled) -> Comparison:
    """All that both have, steps first."""
    paired = a.run == b.run
    # In one run the machine is the same, and a control would be compared with itself.
    kept = [[one for one in side.series if not (paired and one.schedule == CONTROL)] for side in (a, b)]
    first, second = ({_key(one): one for one in side} for side in kept)
    both = [key for key in first if key in second]
    alone = [f"{' '.join(filter(None, key))}: only in {a.path}" for key in first if key not in second]
    alone += [f"{' '.join(filter(None, key))}: only in {b.path}" for key in second if key not in first]
    changes = [compared(first[key], second[key], paired=paired) for key in both]
    unlike = [f"{key}: {a.about[key]} in A, {b.about[key]} in B" for key in a.about if a.about[key] != b.about[key]]
    return Comparison(a.path, b.path, unlike, sorted(changes, key=_order), alone)


def _key(one: Series) -> tuple[str, str, str]:
    return one.schedule, one.backend, one.name


def _order(change: Change) -> int:
    return 2 if change.schedule == CONTROL else 0 if change.name == WHOLE_STEP else 1


def lines(comparison: Comparison) -> Iterator[str]:
    """What to know before the table."""
    yield f"A: {comparison.a}"
    yield f"B: {comparison.b}"
    yield from comparison.unlike
    yield from comparison.alone
    moved = [
        change.name
        for change in comparison.changes
        if change.schedule == CONTROL and change.verdict in (FASTER, SLOWER)
    ]
    if moved:
        yield f"the machine itself differed: {', '.join(moved)}; the rest may be its doing"


def table(comparison: Comparison) -> Table:
    columns = ("schedule", "backend", "of", "A, us", "B, us", "B / A", "95% interval", "verdict")
    made = titled(*columns, title="B against A")
    for one in comparison.changes:
        interval = f"{one.low:.3f} to {one.high:.3f}{', paired' if one.paired else ''}"
        times = f"{one.a_us:.1f}", f"{one.b_us:.1f}", f"{one.ratio:.3f}"
        made.add_row(one.schedule or "selected", one.backend, one.name, *times, interval, one.verdict)
    return made


def as_json(comparison: Comparison) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.to_builtins(comparison)
    return document
