"""What a step costs the device alone, by the slope: how much longer a submission of more steps takes.

T(n) = a + b n for n steps in one submission. b holds the kernels and the barriers between them, and nothing of the
host: no recording, no submit, no waking of whoever waits. Timestamps around each dispatch would say it as well, but
cost a software driver as much as a small kernel each.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

import vkcat
from benchmarks.contender import Settings
from benchmarks.program import write_start
from benchmarks.scene import Scene
from vkcat.executor import Executor
from vkcat.flights import GRAPH
from vkcat.model import fused_for

Array = NDArray[Any]


class DeviceTime:
    """See `benchmarks.contender.Contender`; only its device time is of interest."""

    notes: list[str] = []

    def __init__(self, scene: Scene, settings: Settings, fuse: bool) -> None:
        self._device = vkcat.open_device("vulkan", settings.device)
        stored = scene.stored
        self._model = model = scene.graphs(stored)
        graphs = [model.graphs[GRAPH]]
        planned = fused_for(self._device.info, graphs) if fuse else graphs
        self._executor = Executor(self._device, planned, "unrolled")
        write_start(self._executor, model, stored, scene.start(stored))

    @property
    def versions(self) -> Mapping[str, str]:
        return {"device": self._device.info.name, "driver": self._device.info.driver}

    def generate(self, count: int) -> Array:
        """The newest `count` tokens: no more than the history holds."""
        self._run(count)
        assert self._model.history is not None
        history, drawn = self._executor.read(self._model.history), self._drawn()
        return history[:, np.arange(drawn - count, drawn) % history.shape[1]]

    def _drawn(self) -> int:
        return int(self._executor.read_state(self._model.shared.kept["drawn"])[0])

    def _run(self, count: int) -> int:
        """Nanoseconds of so many steps in one submission."""
        begin = perf_counter_ns()
        self._executor.launch(GRAPH, count)
        self._executor.finish()
        return perf_counter_ns() - begin

    def logits(self) -> Array:
        return self._executor.read(self._model.outputs[GRAPH])

    def device_ns(self, count: int) -> float:
        """The slope between a submission of `count` steps, but at least 4, and one of a quarter of them.

        Each is run before and after the other, after one that does not count: a processor that was idle begins faster
        or slower than it goes on, and what drifts evenly cancels.
        """
        many = max(count, 4)
        few = many // 4
        _, long, short, again, longer = (self._run(steps) for steps in (few, many, few, few, many))
        return (long + longer - short - again) / (2 * (many - few))

    def close(self) -> None:
        self._executor.close()
        self._device.close()


def open_contender(scene: Scene, settings: Settings, *, fuse: bool) -> DeviceTime:
    return DeviceTime(scene, settings, fuse)
