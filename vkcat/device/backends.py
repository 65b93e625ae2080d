"""The list of backends. Adding one is its module and its line below."""

from __future__ import annotations

from importlib import import_module

from vkcat.device.interface import Device
from vkcat.errors import DeviceError, mismatch

BACKENDS = {"vulkan": "vkcat.device.vulkan", "kompute": "vkcat.device.kompute"}
"""The module of each, which is imported when one is opened."""


def open_device(backend: str = "vulkan", wanted: str | None = None) -> Device:
    """Open a device by backend, and by index or part of its name. Raises `DeviceError`."""
    if backend not in BACKENDS:
        raise DeviceError(mismatch("backend", f"one of {', '.join(BACKENDS)}", repr(backend)))
    device: Device = import_module(BACKENDS[backend]).open_device(wanted)
    return device
