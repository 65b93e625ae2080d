"""The `vulkan` backend's device: what the interface asks for, put together from its parts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

from vkcat.device.interface import CalibratedTimestamps, DeviceInfo, Dispatch, Memory, Slice, Words
from vkcat.device.lifetime import Lifetime
from vkcat.device.limits import check_dispatch, check_shader
from vkcat.device.select import select
from vkcat.device.vulkan.api import api, calling
from vkcat.device.vulkan.calibration import Calibration
from vkcat.device.vulkan.core import Core
from vkcat.device.vulkan.descriptors import DescriptorSet, bind
from vkcat.device.vulkan.instance import create_instance, describe, physical_devices
from vkcat.device.vulkan.memory import Staging, VulkanBuffer
from vkcat.device.vulkan.pipeline import Pipelines
from vkcat.device.vulkan.pipeline_cache import PipelineCache
from vkcat.device.vulkan.recording import Prepared, VulkanRecording
from vkcat.shader import Shader


class VulkanDevice(Lifetime):
    """See `vkcat.device.interface.Device`."""

    backend = "vulkan"
    offsets = True
    rewrites = True
    separate_wait = True

    def __init__(self, instance: Any, physical: Any, info: DeviceInfo) -> None:
        super().__init__(info)
        # With the dispatch, which keeps its place in memory, and so its identity, for itself.
        self._sets: dict[int, tuple[Dispatch, DescriptorSet]] = {}
        with ExitStack() as made:
            made.callback(api().vkDestroyInstance, instance, None)
            self._core = Core(physical, info)
            made.callback(self._core.close)
            self._staging = Staging(self._core)
            self._cache = PipelineCache(self._core, physical)
            made.callback(self._cache.close)
            self._pipelines = Pipelines(self._core, self._cache)
            made.callback(self._pipelines.close)
            made.callback(self._destroy_sets)
            made.callback(self._core.close_owned)
            self._calibration = Calibration(self._core, instance, physical)
            self._made = made.pop_all()

    @property
    def timestamps(self) -> bool:
        return self.info.timestamp_bits > 0

    @property
    def lost(self) -> bool:
        return self._core.lost

    def calibrated_timestamps(self) -> CalibratedTimestamps | None:
        self.check_open()
        return self._calibration.read()

    def buffer(self, nbytes: int, memory: Memory) -> VulkanBuffer:
        self.check_open()
        return VulkanBuffer(self._core, self._staging, nbytes, memory)

    @property
    def pipeline_counts(self) -> tuple[int, int]:
        """How many pipelines were made, and how many of these the driver says came from the cache on disk."""
        return self._pipelines.counts

    def compiling(self, shaders: Iterable[tuple[Shader, Sequence[int]]]) -> AbstractContextManager[None]:
        self.check_open()
        wanted = list(shaders)
        for shader, spec in wanted:
            check_shader(shader, spec, self.info)
        return self._pipelines.compiling(wanted)

    def dispatch(
        self,
        name: str,
        shader: Shader,
        slices: Sequence[Slice],
        push: Words,
        spec: Sequence[int],
        groups: tuple[int, int, int],
    ) -> Dispatch:
        self.check_open()
        check_shader(shader, spec, self.info)
        check_dispatch(name, shader, slices, push, groups, self.info)
        pipeline = self._pipelines.get(shader, spec)
        descriptors = bind(self._core, pipeline, shader, slices)
        dispatch = Dispatch.of(name, shader, slices, Prepared(pipeline, [descriptors.handle], push, groups))
        self._sets[id(dispatch)] = dispatch, descriptors
        return dispatch

    def release(self, dispatch: Dispatch) -> None:
        kept = self._sets.pop(id(dispatch), None)
        if kept is not None:
            self._core.end_pending()
            api().vkDestroyDescriptorPool(self._core.handle, kept[1].pool, None)

    def recording(self, *, timestamps: bool = False) -> VulkanRecording:
        self.check_open()
        return VulkanRecording(self._core, timestamps=timestamps and self.timestamps)

    def _forget(self) -> None:
        self._core.forget_owned()
        self._sets.clear()

    def _destroy_sets(self) -> None:
        for _, descriptors in self._sets.values():
            api().vkDestroyDescriptorPool(self._core.handle, descriptors.pool, None)
        self._sets.clear()

    def _release(self) -> None:
        """Newest first, each also when one before it warns and warnings are errors."""
        self._made.close()


def open_device(wanted: str | None = None) -> VulkanDevice:
    """Open the device that `wanted` names, or the best one. Raises `DeviceError`."""
    with ExitStack() as made:
        instance = create_instance()
        made.callback(api().vkDestroyInstance, instance, None)
        with calling("querying devices"):
            physical = physical_devices(instance)
            infos = [describe(handle, index) for index, handle in enumerate(physical)]
        info, _ = select(infos, wanted)
        # From here on the device destroys it, also when it cannot be opened.
        made.pop_all()
    return VulkanDevice(instance, physical[info.index], info)
