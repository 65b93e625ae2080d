"""Compute pipelines, one for each shader and set of specialisation constants."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Thread
from typing import Any

import numpy as np
from msgspec import Struct

from vkcat.device.vulkan.api import api, calling
from vkcat.device.vulkan.core import Core
from vkcat.device.vulkan.pipeline_cache import PipelineCache
from vkcat.shader import Shader


class Pipeline(Struct, frozen=True):
    handle: Any
    layout: Any
    set_layout: Any
    bindings: int
    from_cache: bool


Key = tuple[bytes, tuple[int, ...]]


class Pipelines:
    """Pipelines by shader code and specialisation, made once a device.

    A driver compiles in vkCreateComputePipelines, and cffi lets other threads run meanwhile, so those that are known
    beforehand are made side by side. The cache is safe to use from several threads (Vulkan 1.3, Pipeline Cache).
    """

    def __init__(self, core: Core, cache: PipelineCache) -> None:
        self._core = core
        self._cache = cache
        self._made: dict[Key, Pipeline] = {}

    @property
    def counts(self) -> tuple[int, int]:
        """How many were made, and how many of these the driver says came from the cache it was given."""
        made = list(self._made.values())
        return len(made), sum(pipeline.from_cache for pipeline in made)

    def compiling(self, wanted: Iterable[tuple[Shader, Sequence[int]]]) -> AbstractContextManager[None]:
        """Make those that are not there yet, on all processor cores but the one of the block until that has ended.

        Raises `DeviceError`.
        """
        missing = {key: shader for shader, spec in wanted if (key := _key(shader, spec)) not in self._made}

        def making(key: Key, shader: Shader) -> Callable[[], None]:
            def make() -> None:
                self._made[key] = self._create(shader, key[1])

            return make

        # The largest first: it would have the others wait if it came last.
        by_size = sorted(missing.items(), key=lambda item: len(item[0][0]), reverse=True)
        return _side_by_side([making(key, shader) for key, shader in by_size])

    def get(self, shader: Shader, spec: Sequence[int]) -> Pipeline:
        key = _key(shader, spec)
        if key not in self._made:
            self._made[key] = self._create(shader, spec)
        return self._made[key]

    def _create(self, shader: Shader, spec: Sequence[int]) -> Pipeline:
        vk, device = api(), self._core.handle
        with calling(f"{shader.name}: pipeline"):
            set_layout, layout = _layouts(device, shader)
            try:
                handle, from_cache = self._compile(shader, spec, layout)
            except BaseException:
                vk.vkDestroyPipelineLayout(device, layout, None)
                vk.vkDestroyDescriptorSetLayout(device, set_layout, None)
                raise
        return Pipeline(handle, layout, set_layout, len(shader.interface.bindings), from_cache)

    def _compile(self, shader: Shader, spec: Sequence[int], layout: Any) -> tuple[Any, bool]:
        """VkPipeline, and whether it came from the cache; false where the driver cannot tell."""
        vk, device = api(), self._core.handle
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
            feedback = vk.ffi.new("VkPipelineCreationFeedback *")
            if self._core.creation_feedback:
                told = vk.VkPipelineCreationFeedbackCreateInfo(pPipelineCreationFeedback=feedback)
                create.pNext = vk.ffi.addressof(told)
            handle = vk.vkCreateComputePipelines(device, self._cache.handle, 1, [create], None)[0]
        finally:
            vk.vkDestroyShaderModule(device, module, None)
        told_of = (
            vk.VK_PIPELINE_CREATION_FEEDBACK_VALID_BIT
            | vk.VK_PIPELINE_CREATION_FEEDBACK_APPLICATION_PIPELINE_CACHE_HIT_BIT
        )
        return handle, feedback.flags & told_of == told_of

    def close(self) -> None:
        vk, device = api(), self._core.handle
        for pipeline in self._made.values():
            vk.vkDestroyPipeline(device, pipeline.handle, None)
            vk.vkDestroyPipelineLayout(device, pipeline.layout, None)
            vk.vkDestroyDescriptorSetLayout(device, pipeline.set_layout, None)
        self._made.clear()


def _key(shader: Shader, spec: Sequence[int]) -> Key:
    return shader.code, tuple(spec)


def _layouts(device: Any, shader: Shader) -> tuple[Any, Any]:
    """VkDescriptorSetLayout and VkPipelineLayout of a shader's bindings and push constants."""
    vk = api()
    bindings = [
        vk.VkDescriptorSetLayoutBinding(
            binding=binding.index,
            descriptorType=vk.VK_DESCRIPTOR_TYPE_STORAGE_BUFFER,
            descriptorCount=1,
            stageFlags=vk.VK_SHADER_STAGE_COMPUTE_BIT,
        )
        for binding in shader.interface.bindings
    ]
    set_create = vk.VkDescriptorSetLayoutCreateInfo(bindingCount=len(bindings), pBindings=bindings)
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
    try:
        return set_layout, vk.vkCreatePipelineLayout(device, layout_create, None)
    except BaseException:
        vk.vkDestroyDescriptorSetLayout(device, set_layout, None)
        raise


@contextmanager
def _side_by_side(work: Sequence[Callable[[], None]]) -> Iterator[None]:
    """Do all of it on all processor cores, this one when its block has ended; then raise what one of them raised.

    With plain threads: concurrent.futures takes as long to import as a driver takes to compile some shaders.
    """
    waiting = deque(work)
    raised: list[Exception] = []

    def go_on() -> None:
        while waiting:
            try:
                one = waiting.popleft()
            except IndexError:
                return
            try:
                one()
            except Exception as error:
                raised.append(error)

    helpers = [Thread(target=go_on) for _ in range(min(os.cpu_count() or 1, len(work)) - 1)]
    for helper in helpers:
        helper.start()
    try:
        yield
        go_on()
    finally:
        # Whoever stops this one stops all: none may compile for a device that is being closed.
        waiting.clear()
        for helper in helpers:
            helper.join()
    if raised:
        raise raised[0]
