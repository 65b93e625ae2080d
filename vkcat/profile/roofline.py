"""How near its ceiling each kernel runs.

Source: Williams, Waterman and Patterson, Roofline: An Insightful Visual Performance Model, CACM 52, 2009. A kernel can
be no faster than its bytes through the reading ceiling, its operations through the multiply-add ceiling, or its
dispatches with nothing in them; the slowest of these binds.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from rich.table import Table

from vkcat.profile.ceilings import DISPATCH, MULTIPLY_ADD, READ, Ceilings
from vkcat.profile.layout import cell, titled


class Roofline(Struct, frozen=True):
    """A kernel under a schedule: 10^9 bytes and operations a second by its median time; which ceiling binds (`read`,
    `multiply-add`, `dispatch`), and the share of it that it reaches. Over 100%: it moves less than it could at most, or
    what it reads lies in a cache."""

    name: str
    schedule: str
    gbytes_per_s: float
    gflops: float
    operations_per_byte: float
    ceiling: str
    share_percent: float


def roofline(name: str, schedule: str, calls: int, nbytes: int, operations: int, us: float, top: Ceilings) -> Roofline:
    """Of one kernel's calls in a step that took `us` together."""
    least = {
        READ: nbytes / 1e3 / top.read_gbytes_per_s.median,
        MULTIPLY_ADD: operations / 1e3 / top.multiply_add_gflops.median,
        DISPATCH: calls * top.dispatch_us.median,
    }
    ceiling = max(least, key=lambda key: least[key])
    us = max(us, 1e-3)
    return Roofline(
        name,
        schedule,
        nbytes / 1e3 / us,
        operations / 1e3 / us,
        operations / nbytes,
        ceiling,
        100 * least[ceiling] / us,
    )


def tables(ceilings: Sequence[Ceilings], kernels: Sequence[Roofline]) -> list[Table]:
    """The ceilings, and each kernel below them; none where there are no timestamps."""
    if not ceilings:
        return []
    tops = titled("backend", "ceiling", "", "measured with", title="ceilings")
    for top in ceilings:
        working_set = f"{top.working_set_bytes:,} bytes, {top.read_variant}"
        tops.add_row(top.backend, READ, f"{cell(top.read_gbytes_per_s)} GB/s", working_set)
        tops.add_row("", MULTIPLY_ADD, f"{cell(top.multiply_add_gflops)} GFLOP/s", top.multiply_add_variant)
        tops.add_row("", DISPATCH, f"{cell(top.dispatch_us)} us", "one that does nothing")
    columns = ("kernel", "schedule", "GB/s", "GFLOP/s", "FLOP/byte", "bound by", "% of ceiling")
    roofs = titled(*columns, title="roofline")
    for one in kernels:
        rates = f"{one.gbytes_per_s:.3g}", f"{one.gflops:.3g}", f"{one.operations_per_byte:.2g}"
        roofs.add_row(one.name, one.schedule, *rates, one.ceiling, f"{one.share_percent:.1f}")
    return [tops, roofs]
