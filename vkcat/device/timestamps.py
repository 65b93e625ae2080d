"""Timestamp ticks to nanoseconds: the one place where the period and the valid bits matter."""

from __future__ import annotations

from vkcat.device.interface import CalibratedTimestamps


def elapsed_ns(begin: int, end: int, period: float, valid_bits: int) -> float:
    """Nanoseconds between two counter values of `valid_bits` bits and `period` ns a tick.

    The counter may wrap once between them; bits above the valid ones are undefined and ignored (Vulkan 1.3, section
    "Timestamp Queries").
    """
    mask = (1 << valid_bits) - 1
    return float(((end & mask) - (begin & mask)) & mask) * period


def host_ns(ticks: int, known: CalibratedTimestamps, period: float, valid_bits: int) -> float:
    """The host's time at a counter value, from both clocks at a moment less than half a turn of the counter away."""
    turn = 1 << valid_bits
    apart = (ticks - known.ticks) % turn
    if apart >= turn // 2:
        apart -= turn
    return known.host_ns + apart * period
