"""The `vulkan` package, imported when first needed, and its errors as vkcat's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from vkcat.device.failures import failure
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
        raise failure(subject, _result_of(error)) from error


def _result_of(error: Exception) -> str:
    """The VkResult that an exception of the `vulkan` package stands for; of another, what it says."""
    codes = [code for code, kind in api().exception_codes.items() if code is not None and type(error) is kind]
    return result_name(codes[0]) if codes else repr(error)


def result_name(result: int) -> str:
    """A VkResult as it is written in C."""
    vk = api()
    return str(vk.ffi.typeof("VkResult").elements.get(result, f"VkResult {result}"))


def checked(result: int, subject: str) -> None:
    """For calls made straight through cffi: raise unless VK_SUCCESS."""
    if result != 0:
        raise failure(subject, result_name(result))
