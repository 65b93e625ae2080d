"""Which device to use: discrete, integrated, virtual, CPU in that order, or the one the user names."""

from __future__ import annotations

from collections.abc import Sequence

from vkcat.device.interface import DeviceInfo
from vkcat.errors import DeviceError

ORDER = ("discrete", "integrated", "virtual", "cpu", "other")
MINIMUM_API = (1, 1)


def unusable(info: DeviceInfo) -> str | None:
    """Why vkcat cannot use a device, or None when it can."""
    if info.compute_queue_family is None:
        return "no compute queue"
    if info.api_version[:2] < MINIMUM_API:
        return f"Vulkan {'.'.join(map(str, info.api_version))}, below 1.1"
    return None


def select(devices: Sequence[DeviceInfo], wanted: str | None = None) -> tuple[DeviceInfo, str]:
    """The device to use and the reason for it. `wanted` is an index or part of a name.

    Raises `DeviceError` naming what there is, when none fits.
    """
    if not devices:
        raise DeviceError("no Vulkan device: expected a driver, got none; install one (Debian: mesa-vulkan-drivers)")
    if wanted is not None and wanted != "":
        return _named(devices, wanted)
    usable = [info for info in devices if unusable(info) is None]
    if not usable:
        listed = "; ".join(f"{info.name}: {unusable(info)}" for info in devices)
        raise DeviceError(f"no usable Vulkan device: expected compute and Vulkan 1.1, got {listed}")
    best = min(usable, key=lambda info: (ORDER.index(info.kind), info.index))
    return best, f"first {best.kind} device" if len(usable) > 1 else f"the only usable device ({best.kind})"


def _named(devices: Sequence[DeviceInfo], wanted: str) -> tuple[DeviceInfo, str]:
    matches = [info for info in devices if wanted.isdecimal() and info.index == int(wanted)]
    reason = f"index {wanted} was asked for"
    if not matches:
        # A number that is no index may be a model's.
        matches = [info for info in devices if wanted.lower() in info.name.lower()]
        reason = f"its name has {wanted!r}"
    if len(matches) != 1:
        listed = ", ".join(f"{info.index}: {info.name}" for info in devices)
        raise DeviceError(
            f"device {wanted!r}: expected one of ({listed}), got {len(matches)} matches; see `vkcat devices`"
        )
    why_not = unusable(matches[0])
    if why_not:
        raise DeviceError(f"device {matches[0].name}: expected compute and Vulkan 1.1, got {why_not}")
    return matches[0], reason
