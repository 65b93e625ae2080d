"""Compute pipelines, one for each shader and set of specialisation constants, and their descriptor sets."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vkcat.device.interface import Slice
from vkcat.device.vulkan.api import api, calling
from vkcat.device.vulkan.core import Core
from vkcat.shader import Shader


@dataclass(frozen=True)
class Pipeline:
    handle: Any
    layout: Any
    set_layout: Any
    bindings: int


class Pipelines:
    """Pipelines by shader code and specialisation, made once a device."""

    def __init__(self, core: Core) -> None:
        vk = api()
        self._core = core
        self._made: dict[tuple[bytes, tuple[int, ...]], Pipeline] = {}
        self._cache = vk.vkCreatePipelineCache(core.handle, vk.VkPipelineCacheCreateInfo(), None)

    def get(self, shader: Shader, spec: Sequence[int]) -> Pipeline:
        key = (hashlib.sha256(shader.code).digest(), tuple(spec))
        if key not in self._made:
            with calling(f"{shader.name}: pipeline"):
                self._made[key] = self._create(shader, spec)
        return self._made[key]

    def _create(self, shader: Shader, spec: Sequence[int]) -> Pipeline:
        vk, device = api(), self._core.handle
        layout_bindings = [
            vk.VkDescriptorSetLayoutBinding(
                binding=binding.index,
                descriptorType=vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                descriptorCount=1,
                stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT,
            )
            for binding in shader.interface.bindings
        ]
        set_create = vk.VkDescriptorSetLayoutCreateInfo(bindingCount=len(layout_bindings), pBindings=layout_bindings)
        set_layout = vk.vkCreateDescriptorSetLayout(device, set_create, None)
        pushed = shader.interface.push_bytes
        ranges = (
            [vk.VkPushConstantRange(stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT, offset=0, size=pushed)] if pushed else []
        )
        layout_create = vk.VkPipelineLayoutCreateInfo(
            setLayoutCount=1,
            pSetLayouts=[set_layout],
            pushConstantRangeCount=len(ranges),
            pPushConstantRanges=ranges or None,
        )
        layout = vk.vkCreatePipelineLayout(device, layout_create, None)
        module_create = vk.VkShaderModuleCreateInfo(codeSize=len(shader.code), pCode=shader.code)
        module = vk.vkCreateShaderModule(device, module_create, None)
        try:
            entries = [
                vk.VkSpecializationMapEntry(constantID=identifier, offset=4 * place, size=4)
                for place, (identifier, _) in enumerate(shader.interface.spec.values())
            ]
            values = np.array(spec, np.uint32)
            data = vk.ffi.from_buffer(values) if entries else None
            specialization = vk.VkSpecializationInfo(
                mapEntryCount=len(entries), pMapEntries=entries or None, dataSize=values.nbytes, pData=data
            )
            name = vk.ffi.new("char[]", b"main")
            stage = vk.VkPipelineShaderStageCreateInfo(
                stage=vk.VK_SHADER_STAGE_COMPUTE_BIT, module=module, pName=name, pSpecializationInfo=specialization
            )
            create = vk.VkComputePipelineCreateInfo(stage=stage, layout=layout)
            pipeline = vk.vkCreateComputePipelines(device, self._cache, 1, [create], None)[0]
        finally:
            vk.vkDestroyShaderModule(device, module, None)
        return Pipeline(pipeline, layout, set_layout, len(layout_bindings))

    def close(self) -> None:
        vk, device = api(), self._core.handle
        for pipeline in self._made.values():
            vk.vkDestroyPipeline(device, pipeline.handle, None)
            vk.vkDestroyPipelineLayout(device, pipeline.layout, None)
            vk.vkDestroyDescriptorSetLayout(device, pipeline.set_layout, None)
        self._made.clear()
        vk.vkDestroyPipelineCache(device, self._cache, None)


@dataclass(frozen=True)
class DescriptorSet:
    """A set in a pool of its own, so that releasing it leaves no hole in another's."""

    pool: Any
    handle: Any


def bind(core: Core, pipeline: Pipeline, shader: Shader, slices: Sequence[Slice]) -> DescriptorSet:
    """A set that binds each slice in the shader's order."""
    vk, device = api(), core.handle
    with calling(f"{shader.name}: descriptor set"):
        count = max(pipeline.bindings, 1)
        sizes = [vk.VkDescriptorPoolSize(type=vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER, descriptorCount=count)]
        create = vk.VkDescriptorPoolCreateInfo(maxSets=1, poolSizeCount=1, pPoolSizes=sizes)
        pool = vk.vkCreateDescriptorPool(device, create, None)
        allocate = vk.VkDescriptorSetAllocateInfo(
            descriptorPool=pool, descriptorSetCount=1, pSetLayouts=[pipeline.set_layout]
        )
        handle = vk.vkAllocateDescriptorSets(device, allocate)[0]
        infos = [
            vk.VkDescriptorBufferInfo(buffer=part.buffer.handle, offset=part.offset, range=part.size)  # type: ignore[attr-defined]
            for part in slices
        ]
        writes = [
            vk.VkWriteDescriptorSet(
                dstSet=handle,
                dstBinding=binding.index,
                descriptorCount=1,
                descriptorType=vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
                pBufferInfo=[info],
            )
            for binding, info in zip(shader.interface.bindings, infos, strict=True)
        ]
        vk.vkUpdateDescriptorSets(device, len(writes), writes, 0, None)
    return DescriptorSet(pool, handle)
