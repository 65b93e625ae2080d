"""How a shader's invocations share its work: the constants of tiling.glsl and lanes.glsl in shaders/include."""

from __future__ import annotations

from collections.abc import Container, Mapping

from msgspec import Struct

MOST_LANES = 128
"""Invocations a workgroup: every Vulkan device has that many."""

FEWEST_LANES = 8
"""A workgroup of a software driver: no more than its vectors hold, so that there are many."""


class Tiling(Struct, frozen=True):
    """An invocation computes `rows` outputs of `streams` streams; `split` neighbours share each sum.

    `lanes` invocations make a workgroup; `split` is a power of two that divides them.
    """

    streams: int = 1
    rows: int = 1
    split: int = 1
    lanes: int = 64

    @property
    def constants(self) -> dict[str, int]:
        """By the names in the shader."""
        return {"TILE": self.streams, "ROWS": self.rows, "SPLIT": self.split, "LANES": self.lanes}

    def limited(self, names: Container[str]) -> Tiling:
        """Of these constants only."""
        return Tiling(
            streams=self.streams if "TILE" in names else 1,
            rows=self.rows if "ROWS" in names else 1,
            split=self.split if "SPLIT" in names else 1,
            lanes=self.lanes,
        )


MOST_SUMS, MOST_AGES = 256, 512
"""Outputs of an invocation, beyond which compilers take minutes; and what shaders have room for in shared memory."""


def is_possible(tiling: Tiling) -> bool:
    """Whether every shader can be run so."""
    numbers = tiling.constants.values()
    return (
        all(number >= 1 and number & (number - 1) == 0 for number in numbers)
        and tiling.split <= tiling.lanes <= MOST_LANES
        and tiling.streams * tiling.rows <= MOST_SUMS
        and tiling.rows * tiling.lanes <= MOST_AGES
    )


class Machine(Struct, frozen=True):
    """What a tiling depends on: whether the device is a software driver's, and how many cores that has."""

    cpu: bool
    cores: int = 1


def of_products(outputs: int, batch: int, rows: int, machine: Machine) -> Tiling:
    """What runs well where nothing was measured, for so many outputs of each stream.

    `rows` are the rows of matrices that one output multiplies. A software driver makes each load lane by lane, so loads
    decide: up to 16 rows share those of up to 16 streams, as long as each core has a workgroup. With several streams
    they are of 8 outputs at most, since another doubling takes a compiler three times as long for some 20% of the time.
    On a GPU neighbours must read neighbouring bytes, and sums are split among them.
    """
    if not machine.cpu:
        return Tiling(streams=_power_of_two(min(batch, 4)), split=16)
    streams = _power_of_two(min(batch, 16))
    most = min(16, outputs * rows // (FEWEST_LANES * machine.cores)) // rows
    return Tiling(streams=streams, rows=_power_of_two(min(most, 16 if streams == 1 else 8)), lanes=FEWEST_LANES)


def of_experts(outputs: int, machine: Machine) -> Tiling:
    """One workgroup the whole of an expert, with so many outputs of two rows each in its middle."""
    if machine.cpu:
        return of_products(outputs, 1, 2, Machine(cpu=True))
    return Tiling(split=4, lanes=MOST_LANES)


def of_attention(sizes: Mapping[str, int], machine: Machine) -> Tiling:
    """One workgroup a head; a lane of a software driver works on several ages, whose loads of the query it shares."""
    del sizes
    return Tiling(rows=8, lanes=FEWEST_LANES) if machine.cpu else Tiling()


def of_lanes(sizes: Mapping[str, int], machine: Machine) -> Tiling:
    """Of a shader whose workgroups can be larger or smaller, and nothing else."""
    del sizes
    return Tiling(lanes=FEWEST_LANES) if machine.cpu else Tiling()


def of_columns(columns: int, machine: Machine) -> Tiling:
    """One workgroup a matrix: a lane keeps whole columns of it, four to a vec4.

    On a GPU neighbours share the rows of a column, as many as a power of two allows and 16 at most: with 5 to 256
    columns at least half of the lanes have work. A software driver's lanes take several vec4, to share the loads of
    what each row has once.
    """
    quads = -(-columns // 4)
    if machine.cpu:
        return Tiling(rows=4 * min(_power_of_two(-(-quads // FEWEST_LANES)), 4), lanes=FEWEST_LANES)
    lanes = Tiling().lanes
    return Tiling(rows=4, split=min(_power_of_two(lanes // min(quads, lanes)), 16), lanes=lanes)


def _power_of_two(most: int) -> int:
    """The greatest that is not more."""
    return 1 << (max(most, 1).bit_length() - 1)
