"""Which of a tensor's axes is what, followed through transposes and reshapes.

An axis is a tuple of factors, row-major: (direction, hidden) after both directions were laid side by side. An axis of
size 1 that means nothing has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from vkcat.errors import ModelError, mismatch

DIRECTION, HIDDEN, CHANNEL = "direction", "hidden", "channel"
CHANNELS = (DIRECTION, HIDDEN, CHANNEL)


class Factor(Struct, frozen=True):
    """`label` says what is counted: one of `CHANNELS`, or an axis of a graph's input; `size` is None if not known."""

    label: str
    size: int | None

    @property
    def counts_channels(self) -> bool:
        return self.label in CHANNELS


Axis = tuple[Factor, ...]
Axes = tuple[Axis, ...]
Size = tuple[int, tuple[str, ...]]


def size_of(axis: Axis) -> Size:
    """The product of what is known, and the labels of what is not."""
    known = math.prod(factor.size for factor in axis if factor.size is not None)
    return known, tuple(sorted(factor.label for factor in axis if factor.size is None))


def shown(axes: Sequence[Axis]) -> str:
    parts = []
    for axis in axes:
        names = [factor.label if factor.size is None else f"{factor.label} {factor.size}" for factor in axis]
        parts.append(" x ".join(names) or "1")
    return f"({', '.join(parts)})"


def transposed(where: str, axes: Axes, order: Sequence[int]) -> Axes:
    if sorted(order) != list(range(len(axes))):
        raise ModelError(mismatch(f"{where}: perm", f"an order of {len(axes)} axes", list(order)))
    return tuple(axes[at] for at in order)


def squeezed(where: str, axes: Axes, which: Sequence[int] | None) -> Axes:
    if which is None:
        which = [at for at, axis in enumerate(axes) if size_of(axis) == (1, ())]
    gone = {index_of(where, at, len(axes)) for at in which}
    for at in sorted(gone):
        if size_of(axes[at]) != (1, ()):
            raise ModelError(mismatch(f"{where}: axis {at}", "size 1", shown([axes[at]])))
    return tuple(axis for at, axis in enumerate(axes) if at not in gone)


def unsqueezed(where: str, axes: Axes, which: Sequence[int]) -> Axes:
    rank = len(axes) + len(which)
    new = {index_of(where, at, rank) for at in which}
    if len(new) < len(which):
        raise ModelError(mismatch(f"{where}: axes", "different ones", list(which)))
    rest = iter(axes)
    return tuple(() if at in new else next(rest) for at in range(rank))


def index_of(where: str, at: int, rank: int) -> int:
    """An axis counted from the end, from the beginning."""
    if not -rank <= at < rank:
        raise ModelError(mismatch(f"{where}: axis", f"{-rank} to {rank - 1}", at))
    return at % rank


def reshaped(where: str, axes: Axes, target: Sequence[int | Axis], *, zero_copies: bool) -> Axes:
    """`target` are sizes: a number, -1 for the rest, 0 for the axis at the same place; or an axis of the same size.

    Every axis must be made of whole factors, in their order, and time and batch must stay apart.
    """
    wanted = [_wanted(where, axes, at, size, zero_copies) for at, size in enumerate(target)]
    if wanted.count(None) > 1:
        raise ModelError(mismatch(f"{where}: shape", "at most one -1", list(target)))
    factors = [factor for axis in axes for factor in axis]
    rest = wanted.index(None) if None in wanted else len(wanted)
    before = [_taken(where, factors, size, 0) for size in wanted[:rest]]
    after = [_taken(where, factors, size, -1) for size in reversed(wanted[rest + 1 :])][::-1]
    if rest < len(wanted):
        made = [*before, tuple(factors), *after]
    elif all(factor.size == 1 for factor in factors):
        made = before
    else:
        raise ModelError(mismatch(f"{where}: shape", f"all of {shown(axes)}", f"all but {shown([tuple(factors)])}"))
    return tuple(_whole(where, axis) for axis in made)


def _wanted(where: str, axes: Axes, at: int, size: int | Axis, zero_copies: bool) -> Size | None:
    """None for the rest."""
    if isinstance(size, tuple):
        return size_of(size)
    if size == 0 and zero_copies and at < len(axes):
        return size_of(axes[at])
    if size < -1 or size == 0:
        raise ModelError(mismatch(f"{where}: shape", "sizes", size))
    return None if size == -1 else (size, ())


def _taken(where: str, factors: list[Factor], size: Size | None, end: int) -> Axis:
    """Factors from that end which together have the size, removed from the list."""
    assert size is not None
    taken: list[Factor] = []
    while size_of(tuple(taken)) != size:
        # More factors only make it larger.
        if not factors or (taken and size_of(tuple(taken))[0] > size[0]):
            got = shown([tuple(taken)])
            raise ModelError(mismatch(f"{where}: shape", "axes kept whole", f"{_text(size)} beside {got}"))
        taken.insert(len(taken) if end == 0 else 0, factors.pop(end))
    if not taken and factors and factors[end].size == 1:
        taken.append(factors.pop(end))
    return tuple(taken)


def _text(size: Size) -> str:
    known, unknown = size
    return " x ".join([*([str(known)] if known != 1 or not unknown else []), *unknown])


def _whole(where: str, axis: Axis) -> Axis:
    """An axis of several factors is of channels alone; those of size 1 do not count."""
    if len(axis) < 2:
        return axis
    kept = tuple(factor for factor in axis if factor.size != 1)
    if len(kept) > 1 and not all(factor.counts_channels for factor in kept):
        raise ModelError(mismatch(f"{where}: shape", "time, batch and channels apart", shown([kept])))
    return kept
