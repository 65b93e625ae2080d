"""The device's timestamp counter and the host's clock at one moment (VK_EXT_calibrated_timestamps)."""

from __future__ import annotations

import time
from typing import Any

from vkcat.device.interface import CalibratedTimestamps
from vkcat.device.vulkan.api import api, checked
from vkcat.device.vulkan.core import CALIBRATED_TIMESTAMPS, Core

_DEVICE, _MONOTONIC = 0, 1
_INFO = 1000184000
"""VK_STRUCTURE_TYPE_CALIBRATED_TIMESTAMP_INFO_EXT, which the `vulkan` package lacks."""

SAMPLES = 8


class Calibration:
    """Reads both clocks at once, where the device has the extension and Python's clock is one that it knows."""

    def __init__(self, core: Core, instance: Any, physical: Any) -> None:
        vk = api()
        self._core = core
        self._get: Any = None
        suffix = CALIBRATED_TIMESTAMPS.get(core.calibrated_timestamps or "")
        # Of the host's clocks that Vulkan names, Python's perf_counter is this one on Linux and BSD.
        if suffix is None or "CLOCK_MONOTONIC)" not in time.get_clock_info("perf_counter").implementation:
            return
        name = f"vkGetPhysicalDeviceCalibrateableTimeDomains{suffix}"
        domains = vk.ffi.cast(f"PFN_{name}", vk.lib.vkGetInstanceProcAddr(instance, name.encode()))
        count = vk.ffi.new("uint32_t *", 8)
        found = vk.ffi.new("VkTimeDomainKHR[8]")
        checked(domains(physical, count, found), name)
        if not {_DEVICE, _MONOTONIC} <= {int(found[at]) for at in range(count[0])}:
            return
        name = f"vkGetCalibratedTimestamps{suffix}"
        self._get = vk.ffi.cast(f"PFN_{name}", vk.lib.vkGetDeviceProcAddr(core.handle, name.encode()))
        self._infos = vk.ffi.new("VkCalibratedTimestampInfoKHR[2]")
        for info, domain in zip(self._infos, (_DEVICE, _MONOTONIC), strict=True):
            info.sType, info.timeDomain = _INFO, domain

    def read(self) -> CalibratedTimestamps | None:
        """The closest of some readings; None where there can be none."""
        if self._get is None:
            return None
        vk = api()
        both, deviation = vk.ffi.new("uint64_t[2]"), vk.ffi.new("uint64_t *")
        readings = []
        for _ in range(SAMPLES):
            result = self._get(self._core.handle, 2, self._infos, both, deviation)
            checked(result, f"vkGetCalibratedTimestamps of {self._core.info.name}")
            readings.append(CalibratedTimestamps(int(both[0]), int(both[1]), int(deviation[0])))
        return min(readings, key=lambda reading: reading.deviation_ns)
