"""The list of backends. Adding one is its module and its line below."""

from __future__ import annotations

from collections.abc import Callable

from vkcat.device import kompute, vulkan
from vkcat.device.interface import Device
from vkcat.errors import DeviceError, mismatch

BACKENDS: dict[str, Callable[[str | None], Device]] = {
    "vulkan": vulkan.open_device,
    "kompute": kompute.open_device,
}


def open_device(backend: str = "vulkan", wanted: str | None = None) -> Device:
    """Open a device by backend, and by index or part of its name. Raises `DeviceError`."""
    if backend not in BACKENDS:
        raise DeviceError(mismatch("backend", f"one of {', '.join(BACKENDS)}", repr(backend)))
    return BACKENDS[backend](wanted)
