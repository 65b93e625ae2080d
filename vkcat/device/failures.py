"""What a failed Vulkan call becomes: an error of its own kind, with what to do then."""

from __future__ import annotations

from vkcat.errors import DeviceError, DeviceLostError, DeviceTimeoutError, OutOfMemoryError, mismatch

_CLOSE = "close what is no longer used"
_ANEW = "open the device anew, and go on from a saved state"
_KINDS: dict[str, tuple[type[DeviceError], str]] = {
    "VK_ERROR_OUT_OF_HOST_MEMORY": (OutOfMemoryError, "use a smaller model or batch"),
    "VK_ERROR_OUT_OF_DEVICE_MEMORY": (OutOfMemoryError, f"use a smaller model or batch, or {_CLOSE}"),
    "VK_ERROR_MEMORY_MAP_FAILED": (OutOfMemoryError, _CLOSE),
    "VK_ERROR_TOO_MANY_OBJECTS": (OutOfMemoryError, _CLOSE),
    "VK_ERROR_OUT_OF_POOL_MEMORY": (OutOfMemoryError, _CLOSE),
    "VK_ERROR_FRAGMENTED_POOL": (OutOfMemoryError, _CLOSE),
    "VK_ERROR_FRAGMENTATION": (OutOfMemoryError, _CLOSE),
    "VK_ERROR_DEVICE_LOST": (DeviceLostError, _ANEW),
    "VK_TIMEOUT": (DeviceTimeoutError, f"see --submit-limit; {_ANEW}"),
}


def failure(subject: str, result: str) -> DeviceError:
    """The error for a call that gave this VkResult."""
    kind, remedy = _KINDS.get(result, (DeviceError, ""))
    return kind(mismatch(subject, "VK_SUCCESS", result, remedy))
