"""The `vulkan` package, imported when first needed, and its errors as vkcat's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from vkcat.errors import DeviceError


@lru_cache(maxsize=1)
def api() -> Any:
    """The `vulkan` module. Raises `DeviceError` when there is no loader."""
    try:
        import vulkan
    except OSError as error:
        raise DeviceError(
            "no Vulkan loader: expected libvulkan.so.1 (vulkan-1.dll, libvulkan.dylib), got none;"
            " install it (Debian: libvulkan1)"
        ) from error
    return vulkan


def is_vulkan_error(error: Exception) -> bool:
    """Whether an exception was raised by the `vulkan` package for a failed call."""
    vk = api()
    return isinstance(error, (vk.VkError, vk.VkException, vk.ProcedureNotFoundError, vk.ExtensionNotSupportedError))


@contextmanager
def calling(subject: str) -> Iterator[None]:
    """Turn a failed Vulkan call into a `DeviceError` that names what was being done."""
    try:
        yield
    except Exception as error:
        if not is_vulkan_error(error):
            raise
        raise DeviceError(f"{subject}: the driver answered {error!r}") from error


def checked(result: int, subject: str) -> None:
    """For calls made straight through cffi: raise unless VK_SUCCESS."""
    if result != 0:
        vk = api()
        name = type(vk.exception_codes[result]).__name__ if result in vk.exception_codes else f"VkResult {result}"
        raise DeviceError(f"{subject}: the driver answered {name}")
