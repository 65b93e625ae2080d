"""A logical device with its queue and command pool, and the lists of what was made on it and what is under way."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

from vkcat.device.interface import DeviceInfo
from vkcat.device.lifetime import check_owned
from vkcat.device.vulkan.api import api, calling, checked
from vkcat.errors import DeviceError, DeviceLostError, OutOfMemoryError

CREATION_FEEDBACK = "VK_EXT_pipeline_creation_feedback"
CALIBRATED_TIMESTAMPS = {"VK_EXT_calibrated_timestamps": "EXT", "VK_KHR_calibrated_timestamps": "KHR"}
"""With the suffix of their functions; the first that a device has is used."""

WAITS = 4
"""How often a wait is tried that fails for want of memory."""


class Closable(Protocol):
    def close(self) -> None: ...


class Core:
    """VkDevice, its one compute queue, and what buffers, pipelines and recordings need of them."""

    def __init__(self, physical: Any, info: DeviceInfo) -> None:
        vk = api()
        self.info = info
        self.last_dispatch = ""
        self.lost = False
        self._owned: dict[int, Closable] = {}
        self.pending: set[int] = set()
        priorities = vk.ffi.new("float[]", [1.0])
        family = info.compute_queue_family
        queue = vk.VkDeviceQueueCreateInfo(queueFamilyIndex=family, queueCount=1, pQueuePriorities=priorities)
        with calling(f"opening {info.name}"):
            found = {extension.extensionName for extension in vk.vkEnumerateDeviceExtensionProperties(physical, None)}
            # A device that has the first is not whole without it (MoltenVK).
            self.calibrated_timestamps = next((name for name in CALIBRATED_TIMESTAMPS if name in found), None)
            extensions = sorted(found & {"VK_KHR_portability_subset", CREATION_FEEDBACK, self.calibrated_timestamps})
            self.creation_feedback = CREATION_FEEDBACK in found
            create = vk.VkDeviceCreateInfo(
                queueCreateInfoCount=1,
                pQueueCreateInfos=[queue],
                enabledExtensionCount=len(extensions),
                ppEnabledExtensionNames=extensions or None,
            )
            with ExitStack() as made:
                self.handle = vk.vkCreateDevice(physical, create, None)
                made.callback(vk.vkDestroyDevice, self.handle, None)
                self.queue = vk.vkGetDeviceQueue(self.handle, family, 0)
                pool = vk.VkCommandPoolCreateInfo(
                    flags=vk.VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT, queueFamilyIndex=family
                )
                self.command_pool = vk.vkCreateCommandPool(self.handle, pool, None)
                made.callback(vk.vkDestroyCommandPool, self.handle, self.command_pool, None)
                self._once = self.command_buffer()
                self._made = made.pop_all()
        self._once_clean = True
        # Made here, so that a copy, of which a model's weights take some dozens, makes nothing.
        self._once_begin = vk.ffi.new("VkCommandBufferBeginInfo *")
        self._once_begin.sType = vk.VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO
        self._once_begin.flags = vk.VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT
        self._once_pointers = vk.ffi.new("VkCommandBuffer[]", [self._once])
        self._once_submit = vk.ffi.new("VkSubmitInfo *")
        self._once_submit.sType = vk.VK_STRUCTURE_TYPE_SUBMIT_INFO
        self._once_submit.commandBufferCount = 1
        self._once_submit.pCommandBuffers = self._once_pointers
        properties = vk.vkGetPhysicalDeviceMemoryProperties(physical)
        self.memory_types = [
            int(properties.memoryTypes[index].propertyFlags) for index in range(properties.memoryTypeCount)
        ]

    def command_buffer(self) -> Any:
        vk = api()
        allocate = vk.VkCommandBufferAllocateInfo(
            commandPool=self.command_pool, level=vk.VK_COMMAND_BUFFER_LEVEL_PRIMARY, commandBufferCount=1
        )
        return vk.vkAllocateCommandBuffers(self.handle, allocate)[0]

    def once(self, commands: Callable[[Any], None]) -> None:
        """Record and run `commands`, and wait for them: for copies outside the steps."""
        vk = api()
        lib, none = vk.lib, vk.ffi.NULL
        if not self._once_clean:
            # The last was cut short, and may be under way, or half recorded.
            self.drain()
            lib.vkResetCommandBuffer(self._once, 0)
        self._once_clean = False
        self.check(lib.vkBeginCommandBuffer(self._once, self._once_begin), "vkBeginCommandBuffer for a copy")
        commands(self._once)
        self.check(lib.vkEndCommandBuffer(self._once), "vkEndCommandBuffer for a copy")
        self.pending.add(id(self))
        self.check(lib.vkQueueSubmit(self.queue, 1, self._once_submit, none), "vkQueueSubmit of a copy")
        self.drain()
        self._once_clean = True

    def drain(self) -> None:
        """Wait until the queue has nothing left to do."""
        self.check(api().lib.vkQueueWaitIdle(self.queue), "vkQueueWaitIdle")
        self.pending.discard(id(self))

    def check(self, result: int, call: str) -> None:
        """Raises a `DeviceError` naming the call and the last dispatch submitted, unless the result is VK_SUCCESS."""
        if result != 0:
            try:
                checked(result, f"{self.info.name}: {call}, last dispatch {self.last_dispatch or 'none'}")
            except DeviceLostError:
                self.lost = True
                raise

    def own(self, thing: Closable) -> None:
        self._owned[id(thing)] = thing

    def disown(self, thing: Closable) -> bool:
        """Whether `thing` was still to be closed."""
        return self._owned.pop(id(thing), None) is not None

    def check_owned(self, thing: Closable, subject: str) -> None:
        """Raises `DeviceError` when `thing` has been closed, or is another device's."""
        check_owned(thing, self._owned, subject, self.info)

    def forget_owned(self) -> None:
        """Close nothing of what there is."""
        self._owned.clear()
        self.pending.clear()

    def end_pending(self) -> None:
        """Wait for what is under way, if anything: before something is destroyed that it may use."""
        if self.pending:
            self.settle()

    def close_owned(self) -> None:
        """Wait for the device, then close what is left on it, newest first."""
        self.settle()
        for thing in reversed(list(self._owned.values())):
            thing.close()

    def settle(self) -> None:
        """Wait for the queue before what it uses is destroyed; a device that is lost uses nothing more.

        A wait may fail for want of memory though the work goes on, so it is tried some times.
        """
        for _ in range(WAITS):
            try:
                self.drain()
            except OutOfMemoryError:
                continue
            except DeviceError:
                pass
            return

    def close(self) -> None:
        self._made.close()
