"""The search: from the default, each constant is doubled and halved for as long as that is faster.

What is compared takes turns, and counts as faster where the median of the rounds' ratios says so clearly, so that a
disturbance of the machine moves nothing. What was found is checked against the reference before it is kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from vkcat.device.interface import Device
from vkcat.errors import DeviceError, mismatch
from vkcat.graph import Node
from vkcat.parameters import default_tiling
from vkcat.tiling import Tiling, is_possible
from vkcat.tilings import node_key
from vkcat.tune.subject import Subject, case_of
from vkcat.validate.ops import validate_case

ROUNDS = 15
CLEARLY = 0.97


class Found(Struct, frozen=True):
    """`ratio` is the time in the tiling found over that in the default, `us` that of a dispatch in microseconds."""

    node: str
    default: Tiling
    best: Tiling
    us: float
    ratio: float
    tried: int


def tune(device: Device, node: Node, rounds: int = ROUNDS) -> Found:
    """The best tiling of a node on a device. Raises `DeviceError` when it gives something wrong there."""
    default = default_tiling(node, device.info)
    with closing(Subject(device, node)) as subject:
        best, seen = default, {default}
        while (better := _improvement(subject, node, best, seen, rounds)) is not None:
            best = better
        ratio = 1.0 if best == default else _ratio(subject, best, default, rounds)
        if ratio >= 1:
            # Each change was faster than the one before, but not all together: noise.
            best, ratio = default, 1.0
        us = float(np.median([subject.time(best) for _ in range(rounds)])) / 1e3
    for result in validate_case(device, node.kernel, case_of(node), tiling=best):
        if not result.passed:
            wrong = f"{result.tensor}: {result.problem}"
            raise DeviceError(mismatch(f"{node_key(node)} as {best}", "what the reference computes", wrong))
    return Found(node_key(node), default, best, us, ratio, len(seen))


def _improvement(subject: Subject, node: Node, best: Tiling, seen: set[Tiling], rounds: int) -> Tiling | None:
    """The first neighbour that was not seen and is clearly faster."""
    for tiling in _neighbours(node, best):
        if tiling not in seen:
            seen.add(tiling)
            if _ratio(subject, tiling, best, rounds) < CLEARLY:
                return tiling
    return None


def _neighbours(node: Node, tiling: Tiling) -> Iterator[Tiling]:
    """With one constant twice or half as large, of those that change anything."""
    launch, sizes = node.kernel.launch, node.sizes
    for name in ("rows", "lanes", "streams", "split"):
        number = getattr(tiling, name)
        if name in ("streams", "split") and launch(sizes, replace(Tiling(), **{name: 2})) == launch(sizes, Tiling()):
            continue
        for other in (2 * number, number // 2):
            if other >= 1 and is_possible(neighbour := replace(tiling, **{name: other})):
                yield neighbour


def _ratio(subject: Subject, one: Tiling, other: Tiling, rounds: int) -> float:
    """Time in one tiling over that in another: the median of rounds in which both take a turn."""
    times = [(subject.time(one), subject.time(other)) for _ in range(rounds)]
    return float(np.median([first / max(second, 1.0) for first, second in times]))
