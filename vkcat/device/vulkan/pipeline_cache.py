"""A device's VkPipelineCache: begun from its file, and written back, with what others wrote meanwhile, at the end.

Without a file a driver compiles each shader in each process, unless it keeps them on disk of its own accord.
"""

from __future__ import annotations

import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

from vkcat import shader
from vkcat.device.vulkan import cache_file
from vkcat.device.vulkan.api import api, calling, checked
from vkcat.device.vulkan.cache_file import Driver
from vkcat.device.vulkan.core import Core
from vkcat.errors import DeviceError, InputError, VkcatWarning, mismatch


def driver_of(physical: Any) -> Driver:
    vk = api()
    properties = vk.vkGetPhysicalDeviceProperties(physical)
    uuid = bytes(vk.ffi.buffer(properties.pipelineCacheUUID))
    return Driver(int(properties.vendorID), int(properties.deviceID), int(properties.driverVersion), uuid)


class PipelineCache:
    """`handle` is Vulkan's. What is wrong with the file is said once, as a `VkcatWarning`, and costs time alone."""

    def __init__(self, core: Core, physical: Any) -> None:
        self._core = core
        self._driver = driver_of(physical)
        self._path: Path | None = None
        self._stored = b""
        try:
            self._path = self._own_path()
            self._stored = self._read()
        except InputError as error:
            warnings.warn(VkcatWarning(str(error)), stacklevel=2)
        self.handle = self._create(self._stored)

    def _own_path(self) -> Path | None:
        folder = cache_file.user_folder(sys.platform, os.environ, Path.home)
        return None if folder is None else folder / self._driver.file(shader.compiled_digest())

    def _create(self, data: bytes) -> Any:
        vk = api()
        with calling("a pipeline cache"):
            # In a name until the call is over.
            bytes_ = vk.ffi.from_buffer(data) if data else None
            create = vk.VkPipelineCacheCreateInfo(initialDataSize=len(data), pInitialData=bytes_)
            return vk.vkCreatePipelineCache(self._core.handle, create, None)

    def _read(self) -> bytes:
        """What the file holds, or nothing. Raises `InputError` when it is not for this driver."""
        return b"" if self._path is None else cache_file.read(self._path, self._driver)

    def _data(self) -> bytes:
        """All that the driver would keep."""
        vk = api()
        size = vk.ffi.new("size_t *")
        get, device = vk.lib.vkGetPipelineCacheData, self._core.handle
        checked(get(device, self.handle, size, vk.ffi.NULL), "vkGetPipelineCacheData")
        data = vk.ffi.new("char[]", size[0])
        checked(get(device, self.handle, size, data), "vkGetPipelineCacheData")
        return bytes(vk.ffi.buffer(data, size[0]))

    def _save(self) -> None:
        """Write what has been added, if anything: software drivers give nothing but Vulkan's head.

        Of two processes that do so at once, the file has what the later one knew.
        """
        if self._path is None or (data := self._data()) == self._stored or cache_file.is_empty(data):
            return
        # A damaged file was spoken of when it was read first.
        others = b""
        with suppress(InputError):
            others = self._read()
        if others and others != self._stored:
            self._merge(others)
        data = self._data()
        if len(data) > cache_file.MOST_BYTES or not cache_file.fits(data, self._driver):
            with suppress(OSError):
                self._path.unlink()
            expected = f"at most {cache_file.MOST_BYTES} bytes with Vulkan's head"
            remedy = "the next one begins empty"
            raise InputError(mismatch(f"pipeline cache of {self._core.info.name}", expected, len(data), remedy))
        cache_file.write(self._path, self._driver, data)

    def _merge(self, data: bytes) -> None:
        vk, device = api(), self._core.handle
        other = self._create(data)
        vk.vkMergePipelineCaches(device, self.handle, 1, [other])
        vk.vkDestroyPipelineCache(device, other, None)

    def close(self) -> None:
        try:
            with calling("keeping the pipeline cache"):
                self._save()
        except (InputError, DeviceError) as error:
            warnings.warn(VkcatWarning(str(error)), stacklevel=2)
        finally:
            api().vkDestroyPipelineCache(self._core.handle, self.handle, None)
