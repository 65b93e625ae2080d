"""Buffers and the staging copies that fill those the host cannot reach."""

from __future__ import annotations

from typing import Any

import numpy as np

from vkcat.device.interface import Memory, Words
from vkcat.device.vulkan.api import api, calling
from vkcat.device.vulkan.core import Core
from vkcat.errors import DeviceError, mismatch

STAGING_BYTES = 8 << 20


def _memory_types(memory: Memory) -> list[int]:
    """Property masks to try, best first. Every device has a type that is host visible and coherent."""
    vk = api()
    shared = vk.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | vk.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
    if memory is Memory.DEVICE:
        return [vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, 0]
    if memory is Memory.UPLOAD:
        return [shared | vk.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT, shared]
    return [shared | vk.VK_MEMORY_PROPERTY_HOST_CACHED_BIT, shared]


class VulkanBuffer:
    """A VkBuffer with memory of its own, mapped for its whole life when the host uses it."""

    def __init__(self, core: Core, staging: Staging, nbytes: int, memory: Memory) -> None:
        vk = api()
        self._core = core
        self._staging = staging
        self._nbytes = nbytes
        self._memory: Any = None
        self._words: Words | None = None
        usage = vk.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
        usage |= vk.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | vk.VK_BUFFER_USAGE_TRANSFER_DST_BIT
        create = vk.VkBufferCreateInfo(size=nbytes, usage=usage, sharingMode=vk.VK_SHARING_MODE_EXCLUSIVE)
        with calling(f"a buffer of {nbytes} bytes"):
            self.handle = vk.vkCreateBuffer(core.handle, create, None)
            core.own(self)
            try:
                self._give_memory(memory)
            except BaseException:
                self.close()
                raise

    def _give_memory(self, memory: Memory) -> None:
        vk, device = api(), self._core.handle
        requirements = vk.vkGetBufferMemoryRequirements(device, self.handle)
        allocate = vk.VkMemoryAllocateInfo(
            allocationSize=requirements.size, memoryTypeIndex=self._type(requirements.memoryTypeBits, memory)
        )
        self._memory = vk.vkAllocateMemory(device, allocate, None)
        vk.vkBindBufferMemory(device, self.handle, self._memory, 0)
        if memory is not Memory.DEVICE:
            mapping = vk.vkMapMemory(device, self._memory, 0, self._nbytes, 0)
            self._words = np.frombuffer(mapping, np.uint32, self._nbytes // 4)

    def _type(self, allowed: int, memory: Memory) -> int:
        types = self._core.memory_types
        for mask in _memory_types(memory):
            for index, flags in enumerate(types):
                if allowed >> index & 1 and flags & mask == mask:
                    return index
        raise DeviceError(f"{self._core.info.name}: expected a memory type for {memory.value} buffers, got none")

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def mapped(self) -> Words:
        self._core.check_owned(self, "buffer")
        if self._words is None:
            raise ValueError("a DEVICE buffer is not mapped; use read and write")
        return self._words

    def _check(self, nbytes: int, offset: int) -> None:
        self._core.check_owned(self, "buffer")
        if offset % 4 or nbytes % 4 or not 0 <= offset <= offset + nbytes <= self._nbytes:
            raise DeviceError(mismatch("buffer access", f"words within {self._nbytes} bytes", f"{nbytes} at {offset}"))

    def write(self, words: Words, offset: int = 0) -> None:
        self._check(words.nbytes, offset)
        if self._words is not None:
            self._words[offset // 4 : offset // 4 + words.size] = words.ravel()
        else:
            self._staging.write(self.handle, words.ravel(), offset)

    def read(self, nbytes: int, offset: int = 0) -> Words:
        self._check(nbytes, offset)
        if self._words is not None:
            return self._words[offset // 4 : (offset + nbytes) // 4].copy()
        return self._staging.read(self.handle, nbytes, offset)

    def close(self) -> None:
        if not self._core.disown(self):
            return
        vk = api()
        self._words = None
        self._core.end_pending()
        vk.vkDestroyBuffer(self._core.handle, self.handle, None)
        if self._memory is not None:
            vk.vkFreeMemory(self._core.handle, self._memory, None)


class Staging:
    """Copies between the host and buffers it cannot map, in pieces through one mapped buffer."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._buffer: VulkanBuffer | None = None
        vk = api()
        # What shaders wrote before is read here, and what is copied here is read by shaders and the host after.
        self._before, self._after = vk.ffi.new("VkMemoryBarrier *"), vk.ffi.new("VkMemoryBarrier *")
        self._before.sType = self._after.sType = vk.VK_STRUCTURE_TYPE_MEMORY_BARRIER
        self._before.srcAccessMask = vk.VK_ACCESS_SHADER_WRITE_BIT | vk.VK_ACCESS_TRANSFER_WRITE_BIT
        self._before.dstAccessMask = vk.VK_ACCESS_TRANSFER_READ_BIT | vk.VK_ACCESS_TRANSFER_WRITE_BIT
        self._after.srcAccessMask = vk.VK_ACCESS_TRANSFER_WRITE_BIT
        self._after.dstAccessMask = (
            vk.VK_ACCESS_SHADER_READ_BIT | vk.VK_ACCESS_SHADER_WRITE_BIT | vk.VK_ACCESS_HOST_READ_BIT
        )

    def _mapped(self) -> VulkanBuffer:
        if self._buffer is None:
            self._buffer = VulkanBuffer(self._core, self, STAGING_BYTES, Memory.READBACK)
        return self._buffer

    def _copy(self, source: Any, target: Any, source_offset: int, target_offset: int, nbytes: int) -> None:
        vk = api()
        lib, none = vk.lib, vk.ffi.NULL
        region = vk.ffi.new("VkBufferCopy *", (source_offset, target_offset, nbytes))
        compute, transfer = vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, vk.VK_PIPELINE_STAGE_TRANSFER_BIT
        readers = compute | vk.VK_PIPELINE_STAGE_HOST_BIT

        def commands(command_buffer: Any) -> None:
            lib.vkCmdPipelineBarrier(command_buffer, compute | transfer, transfer, 0, 1, self._before, 0, none, 0, none)
            lib.vkCmdCopyBuffer(command_buffer, source, target, 1, region)
            lib.vkCmdPipelineBarrier(command_buffer, transfer, readers, 0, 1, self._after, 0, none, 0, none)

        self._core.once(commands)

    def write(self, target: Any, words: Words, offset: int) -> None:
        staging = self._mapped()
        step = STAGING_BYTES // 4
        for at in range(0, words.size, step):
            piece = words[at : at + step]
            staging.mapped[: piece.size] = piece
            self._copy(staging.handle, target, 0, offset + 4 * at, piece.nbytes)

    def read(self, source: Any, nbytes: int, offset: int) -> Words:
        staging = self._mapped()
        words = np.empty(nbytes // 4, np.uint32)
        step = STAGING_BYTES // 4
        for at in range(0, words.size, step):
            count = min(step, words.size - at)
            self._copy(source, staging.handle, offset + 4 * at, 0, 4 * count)
            words[at : at + count] = staging.mapped[:count]
        return words
