"""Barriers from what each dispatch reads and writes; none where there is no hazard."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from vkcat.plan.layout import Region

Access = tuple[Sequence[Region], Sequence[Region]]
"""What a dispatch reads, and what it writes."""


def barriers(accesses: Iterable[Access], before: Access = ((), ())) -> list[tuple[Region, ...] | None]:
    """For each dispatch, the written regions a barrier before it must make visible, or None for no barrier.

    Read after write and write after write need the writes made visible; write after read needs only the order, and its
    barrier may be empty. A barrier orders everything before it, so one clears all that was pending. `before` is what
    earlier submissions, in any order, may have left unordered.
    """
    read, written = list(before[0]), list(before[1])
    found: list[tuple[Region, ...] | None] = []
    for reads, writes in accesses:
        after_write = any(_touch(written, region) for region in (*reads, *writes))
        after_read = any(_touch(read, region) for region in writes)
        if after_write or after_read:
            found.append(tuple(dict.fromkeys(written)))
            read, written = [], []
        else:
            found.append(None)
        read += reads
        written += writes
    return found


def _touch(pending: Sequence[Region], region: Region) -> bool:
    return any(region.overlaps(other) for other in pending)
