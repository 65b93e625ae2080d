"""Descriptor sets: the buffers that a dispatch reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from vkcat.device.interface import Slice
from vkcat.device.vulkan.api import api, checked
from vkcat.device.vulkan.core import Core
from vkcat.device.vulkan.pipeline import Pipeline
from vkcat.shader import Shader


class DescriptorSet(Struct, frozen=True):
    """A set in a pool of its own, so that releasing it leaves no hole in another's."""

    pool: Any
    handle: Any


def bind(core: Core, pipeline: Pipeline, shader: Shader, slices: Sequence[Slice]) -> DescriptorSet:
    """A set that binds each slice in the shader's order.

    A model has some dozens, so the calls are made straight through cffi.
    """
    for binding, part in zip(shader.interface.bindings, slices, strict=True):
        core.check_owned(part.buffer, f"{shader.name}: {binding.name}: buffer")
    vk = api()
    ffi, lib, device, subject = vk.ffi, vk.lib, core.handle, f"{shader.name}: descriptor set"
    kind = vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER
    size = ffi.new("VkDescriptorPoolSize *", {"type": kind, "descriptorCount": max(pipeline.bindings, 1)})
    create = ffi.new("VkDescriptorPoolCreateInfo *")
    create.sType = vk.VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO
    create.maxSets = create.poolSizeCount = 1
    create.pPoolSizes = size
    pool = ffi.new("VkDescriptorPool *")
    checked(lib.vkCreateDescriptorPool(device, create, ffi.NULL, pool), subject)
    layouts = ffi.new("VkDescriptorSetLayout[]", [pipeline.set_layout])
    allocate = ffi.new("VkDescriptorSetAllocateInfo *")
    allocate.sType = vk.VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO
    allocate.descriptorPool = pool[0]
    allocate.descriptorSetCount = 1
    allocate.pSetLayouts = layouts
    handle = ffi.new("VkDescriptorSet *")
    result = lib.vkAllocateDescriptorSets(device, allocate, handle)
    if result != 0:
        lib.vkDestroyDescriptorPool(device, pool[0], ffi.NULL)
    checked(result, subject)
    infos = ffi.new(
        "VkDescriptorBufferInfo[]",
        [(part.buffer.handle, part.offset, part.size) for part in slices],  # type: ignore[attr-defined]
    )
    writes = ffi.new("VkWriteDescriptorSet[]", len(slices))
    for at, binding in enumerate(shader.interface.bindings):
        write = writes[at]
        write.sType = vk.VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET
        write.dstSet = handle[0]
        write.dstBinding = binding.index
        write.descriptorCount = 1
        write.descriptorType = kind
        write.pBufferInfo = infos + at
    lib.vkUpdateDescriptorSets(device, len(slices), writes, 0, ffi.NULL)
    return DescriptorSet(pool[0], handle[0])
