"""A logical device with one compute queue, and everything made on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol

from vkcat.device.interface import DeviceInfo, Dispatch, Memory, Slice, Words
from vkcat.device.limits import check_dispatch, check_shader
from vkcat.device.select import select
from vkcat.device.vulkan.api import api, calling, checked
from vkcat.device.vulkan.instance import create_instance, describe, physical_devices
from vkcat.device.vulkan.memory import Staging, VulkanBuffer
from vkcat.device.vulkan.pipeline import DescriptorSets, Pipelines
from vkcat.device.vulkan.recording import Prepared, VulkanRecording
from vkcat.shader import Shader


class _Closable(Protocol):
    def close(self) -> None: ...


class VulkanDevice:
    """See `vkcat.device.interface.Device`."""

    backend = "vulkan"
    offsets = True
    separate_wait = True

    def __init__(self, instance: Any, physical: Any, info: DeviceInfo) -> None:
        vk = api()
        self.info = info
        self._instance = instance
        self._owned: dict[int, _Closable] = {}
        self._closed = False
        priorities = vk.ffi.new("float[]", [1.0])
        family = info.compute_queue_family
        queue = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=family, queueCount=1, pQueuePriorities=priorities)
        create = vk.VkDeviceCreateInfo(queueCreateInfoCount=1, pQueueCreateInfos=[queue])
        with calling(f"opening {info.name}"):
            self.handle = vk.vkCreateDevice(physical, create, None)
            self.queue = vk.vkGetDeviceQueue(self.handle, family, 0)
            pool = vk.VkCommandPoolCreateInfo(
                flags=vk.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, queueFamilyIndex=family
            )
            self.command_pool = vk.vkCreateCommandPool(self.handle, pool, None)
            properties = vk.vkGetPhysicalDeviceMemoryProperties(physical)
            self.memory_types = [
                int(properties.memoryTypes[index].propertyFlags) for index in range(properties.memoryTypeCount)
            ]
            self._pipelines = Pipelines(self)
        self._sets = DescriptorSets(self)

    @property
    def timestamps(self) -> bool:
        return self.info.timestamp_bits > 0

    @cached_property
    def staging(self) -> Staging:
        return Staging(self)

    @cached_property
    def _once(self) -> Any:
        vk = api()
        allocate = vk.VkCommandBufferAllocateInfo(
            commandPool=self.command_pool, level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY, commandBufferCount=1
        )
        return vk.vkAllocateCommandBuffers(self.handle, allocate)[0]

    def once(self, commands: Callable[[Any], None]) -> None:
        """Record and run `commands`, and wait for them: for copies outside the steps."""
        vk = api()
        with calling("a copy"):
            vk.vkBeginCommandBuffer(
                self._once, vk.VkCommandBufferBeginInfo(flags=vk.VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT)
            )
            commands(self._once)
            vk.vkEndCommandBuffer(self._once)
            submit = vk.VkSubmitInfo(commandBufferCount=1, pCommandBuffers=[self._once])
            vk.vkQueueSubmit(self.queue, 1, [submit], None)
            checked(vk.lib.vkQueueWaitIdle(self.queue), "vkQueueWaitIdle")

    def own(self, thing: _Closable) -> None:
        self._owned[id(thing)] = thing

    def disown(self, thing: _Closable) -> bool:
        """Whether `thing` was still to be closed."""
        return self._owned.pop(id(thing), None) is not None

    def buffer(self, nbytes: int, memory: Memory) -> VulkanBuffer:
        return VulkanBuffer(self, nbytes, memory)

    def dispatch(
        self,
        name: str,
        shader: Shader,
        slices: Sequence[Slice],
        push: Words,
        spec: Sequence[int],
        groups: tuple[int, int, int],
    ) -> Dispatch:
        check_shader(shader, self.info)
        check_dispatch(name, shader, slices, groups, self.info)
        pipeline = self._pipelines.get(shader, spec)
        sets = [self._sets.write(pipeline, shader, slices)]
        written = tuple(part for binding, part in zip(shader.interface.bindings, slices, strict=True) if binding.writes)
        return Dispatch(name, tuple(slices), written, Prepared(pipeline, sets, push, groups))

    def recording(self, *, timestamps: bool = False) -> VulkanRecording:
        return VulkanRecording(self, timestamps=timestamps and self.timestamps)

    def close(self) -> None:
        """Release everything made on the device, newest first. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        vk = api()
        vk.lib.vkDeviceWaitIdle(self.handle)
        for thing in reversed(list(self._owned.values())):
            thing.close()
        self._sets.close()
        self._pipelines.close()
        vk.vkDestroyCommandPool(self.handle, self.command_pool, None)
        vk.vkDestroyDevice(self.handle, None)
        vk.vkDestroyInstance(self._instance, None)


def open_device(wanted: str | None = None) -> VulkanDevice:
    """Open the device that `wanted` names, or the best one. Raises `DeviceError`."""
    instance = create_instance()
    try:
        with calling("querying devices"):
            physical = physical_devices(instance)
            infos = [describe(handle, index) for index, handle in enumerate(physical)]
        info, _ = select(infos, wanted)
        return VulkanDevice(instance, physical[info.index], info)
    except BaseException:
        api().vkDestroyInstance(instance, None)
        raise
