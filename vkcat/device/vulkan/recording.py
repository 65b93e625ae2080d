"""Command buffers: recorded once, submitted any number of times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from vkcat.device.interface import Barrier, Command, Dispatch, Words
from vkcat.device.timestamps import elapsed_ns
from vkcat.device.vulkan.api import api, calling
from vkcat.device.vulkan.core import Core
from vkcat.device.vulkan.pipeline import Pipeline

TIMEOUT_NS = 60_000_000_000


class Prepared(Struct, frozen=True):
    """What the commands of one dispatch need, in the form cffi takes."""

    pipeline: Pipeline
    sets: list[Any]
    push: Words
    groups: tuple[int, int, int]


class VulkanRecording:
    """A command buffer with a fence, and a query pool when timestamps are wanted."""

    def __init__(self, core: Core, *, timestamps: bool) -> None:
        vk = api()
        self._core = core
        self._timestamps = timestamps
        self._queries: Any = None
        self._query_count = 0
        self._dispatches = 0
        self._last_dispatch = ""
        with calling("command buffer"):
            # Before the command buffer, which a pool takes back and this does not.
            self._fence = vk.vkCreateFence(core.handle, vk.VkFenceCreateInfo(), None)
            try:
                self._commands = core.command_buffer()
            except BaseException:
                vk.vkDestroyFence(core.handle, self._fence, None)
                raise
        core.own(self)
        # Everything a submission passes is made here, so that submitting makes nothing.
        self._pointers = vk.ffi.new("VkCommandBuffer[]", [self._commands])
        self._submit_info = vk.ffi.new("VkSubmitInfo*")
        self._submit_info.sType = vk.VK_STRUCTURE_TYPE_SUBMIT_INFO
        self._submit_info.commandBufferCount = 1
        self._submit_info.pCommandBuffers = self._pointers
        self._fences = vk.ffi.new("VkFence[]", [self._fence])
        self._lib = vk.lib
        self._submitted = False

    def record(self, commands: Sequence[Command]) -> None:
        vk = api()
        self._settle()
        dispatches = [command for command in commands if isinstance(command, Dispatch)]
        self._dispatches = len(dispatches)
        self._last_dispatch = dispatches[-1].name if dispatches else ""
        with calling("recording a command buffer"):
            if self._timestamps:
                self._grow_queries(2 * self._dispatches)
            vk.vkBeginCommandBuffer(self._commands, vk.VkCommandBufferBeginInfo())
            if self._timestamps and self._dispatches:
                vk.vkCmdResetQueryPool(self._commands, self._queries, 0, 2 * self._dispatches)
            query = 0
            for command in commands:
                if isinstance(command, Dispatch):
                    self._dispatch(command.prepared, query)
                    query += 2
                else:
                    self._barrier(to_host=not isinstance(command, Barrier))
            vk.vkEndCommandBuffer(self._commands)

    def _grow_queries(self, count: int) -> None:
        if count <= self._query_count:
            return
        vk = api()
        if self._queries is not None:
            vk.vkDestroyQueryPool(self._core.handle, self._queries, None)
            self._queries, self._query_count = None, 0
        create = vk.VkQueryPoolCreateInfo(queryType=vk.VK_QUERY_TYPE_TIMESTAMP, queryCount=count)
        self._queries = vk.vkCreateQueryPool(self._core.handle, create, None)
        self._query_count = count

    def _dispatch(self, prepared: Prepared, query: int) -> None:
        vk, commands, pipeline = api(), self._commands, prepared.pipeline
        bind_point = vk.VK_PIPELINE_BIND_POINT_COMPUTE
        vk.vkCmdBindPipeline(commands, bind_point, pipeline.handle)
        vk.vkCmdBindDescriptorSets(commands, bind_point, pipeline.layout, 0, 1, prepared.sets, 0, None)
        if prepared.push.size:
            data = vk.ffi.from_buffer(prepared.push)
            vk.vkCmdPushConstants(
                commands, pipeline.layout, vk.VK_SHADER_STAGE_COMPUTE_BIT, 0, prepared.push.nbytes, data
            )
        if self._timestamps:
            vk.vkCmdWriteTimestamp(commands, vk.VK_PIPELINE_STAGE_TOP_OF_PIPE_BIT, self._queries, query)
        vk.vkCmdDispatch(commands, *prepared.groups)
        if self._timestamps:
            vk.vkCmdWriteTimestamp(commands, vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT, self._queries, query + 1)

    def _barrier(self, *, to_host: bool) -> None:
        """A global memory barrier: drivers treat one for each buffer no better."""
        vk = api()
        stage, access = (
            vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT,
            vk.VK_ACCESS_SHADER_READ_BIT | vk.VK_ACCESS_SHADER_WRITE_BIT,
        )
        if to_host:
            stage, access = vk.VK_PIPELINE_STAGE_HOST_BIT, vk.VK_ACCESS_HOST_READ_BIT
        barrier = vk.VkMemoryBarrier(srcAccessMask=vk.VK_ACCESS_SHADER_WRITE_BIT, dstAccessMask=access)
        compute = vk.VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT
        vk.vkCmdPipelineBarrier(self._commands, compute, stage, 0, 1, [barrier], 0, None, 0, None)

    def _settle(self) -> None:
        """End what an interruption left under way. Raises `DeviceError` when the recording has been closed."""
        self._core.check_owned(self, "recording")
        if id(self) in self._core.pending:
            # Not the fence: whether it was given to the queue at all is not known.
            self._core.drain()
            self._core.check(self._lib.vkResetFences(self._core.handle, 1, self._fences), "vkResetFences")
            self._core.pending.discard(id(self))

    def submit(self) -> None:
        core = self._core
        self._settle()
        # Before it is so: an interruption may come between any two lines.
        self._submitted = False
        core.pending.add(id(self))
        core.last_dispatch = self._last_dispatch
        core.check(self._lib.vkQueueSubmit(core.queue, 1, self._submit_info, self._fence), "vkQueueSubmit")
        self._submitted = True

    def wait(self) -> None:
        """For the last submission, if it was not waited for."""
        lib, core = self._lib, self._core
        if not self._submitted or id(self) not in core.pending:
            self._settle()
            return
        result = lib.vkWaitForFences(core.handle, 1, self._fences, 1, TIMEOUT_NS)
        core.check(result, f"vkWaitForFences within {TIMEOUT_NS // 10**9} s")
        # From here on the fence says nothing.
        self._submitted = False
        core.check(lib.vkResetFences(core.handle, 1, self._fences), "vkResetFences")
        core.pending.discard(id(self))

    def kernel_ns(self) -> list[float]:
        info = self._core.info
        return [elapsed_ns(begin, end, info.timestamp_period, info.timestamp_bits) for begin, end in self.ticks()]

    def ticks(self) -> list[tuple[int, int]]:
        if not self._timestamps or not self._dispatches:
            return []
        vk, count = api(), 2 * self._dispatches
        ticks = np.empty(count, np.uint64)
        flags = vk.VK_QUERY_RESULT_64_BIT | vk.VK_QUERY_RESULT_WAIT_BIT
        data = vk.ffi.from_buffer(ticks)
        result = self._lib.vkGetQueryPoolResults(
            self._core.handle, self._queries, 0, count, ticks.nbytes, data, 8, flags
        )
        self._core.check(result, "vkGetQueryPoolResults")
        return [(begin, end) for begin, end in ticks.reshape(-1, 2).tolist()]

    def close(self) -> None:
        if not self._core.disown(self):
            return
        vk, handle = api(), self._core.handle
        self._core.end_pending()
        self._core.pending.discard(id(self))
        vk.vkDestroyFence(handle, self._fence, None)
        vk.vkFreeCommandBuffers(handle, self._core.command_pool, 1, [self._commands])
        if self._queries is not None:
            vk.vkDestroyQueryPool(handle, self._queries, None)
