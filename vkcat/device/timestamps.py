"""Timestamp ticks to nanoseconds: the one place where the period and the valid bits matter."""

from __future__ import annotations

from collections.abc import Sequence

from vkcat.device.interface import CalibratedTimestamps
from vkcat.errors import DeviceError, mismatch

CLOCKS_APART = 1.01
"""How much faster a device's clock may run than the host's."""

REMEDY = "the driver's timestamps cannot be used: see `vkcat doctor`"


def elapsed_ns(begin: int, end: int, period: float, valid_bits: int) -> float:
    """Nanoseconds between two counter values of `valid_bits` bits and `period` ns a tick.

    The counter may wrap once between them; bits above the valid ones are undefined and ignored (Vulkan 1.3, section
    "Timestamp Queries"). Raises `DeviceError` when the end lies before the begin: half a turn of the counter or more,
    which is no dispatch's time.
    """
    turn = 1 << valid_bits
    ticks = (end - begin) % turn
    if ticks >= turn // 2:
        got = f"one {turn - ticks} ticks before it"
        raise DeviceError(mismatch("timestamps of a dispatch", "an end that is not before the begin", got, REMEDY))
    return float(ticks) * period


def check_within(nanoseconds: Sequence[float], waited_ns: float) -> None:
    """Raises `DeviceError` when a dispatch took longer, by the device's clock, than the host waited for all of them."""
    longest = max(nanoseconds, default=0.0)
    if longest > CLOCKS_APART * waited_ns:
        expected = f"at most the {waited_ns / 1e3:.1f} us that the host waited"
        raise DeviceError(mismatch("timestamps of a dispatch", expected, f"{longest / 1e3:.1f} us", REMEDY))


def host_ns(ticks: int, known: CalibratedTimestamps, period: float, valid_bits: int) -> float:
    """The host's time at a counter value, from both clocks at a moment less than half a turn of the counter away."""
    turn = 1 << valid_bits
    apart = (ticks - known.ticks) % turn
    if apart >= turn // 2:
        apart -= turn
    return known.host_ns + apart * period
