"""vkcat as its users drive it: a session that generates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

import vkcat
from benchmarks.contender import Settings
from benchmarks.scene import Scene
from vkcat.runner import Runner

Array = NDArray[Any]


class SessionContender:
    """See `benchmarks.contender.Contender`."""

    notes: list[str] = []

    def __init__(self, scene: Scene, settings: Settings, backend: str, schedule: str, fuse: bool) -> None:
        self._device = vkcat.open_device(backend, settings.device)
        runner = Runner("bench", self._device, backend, schedule, fuse=fuse)
        self._session = vkcat.Session(scene.stored, batch=scene.batch, runner=runner)
        self._session.load_state(scene.state)

    @property
    def versions(self) -> Mapping[str, str]:
        info = self._device.info
        found = {"vkcat": vkcat.__version__, "device": info.name, "driver": info.driver, "numpy": np.__version__}
        if self._device.backend == "kompute":
            found |= _kompute_version()
        return found

    def generate(self, count: int) -> Array:
        return self._session.generate(count)

    def logits(self) -> Array:
        return self._session.outputs

    def device_ns(self, count: int) -> None:
        del count

    def close(self) -> None:
        self._session.close()
        self._device.close()


def _kompute_version() -> dict[str, str]:
    from importlib.metadata import version

    return {"kp": version("kp")}


def open_contender(scene: Scene, settings: Settings, *, backend: str, schedule: str, fuse: bool) -> SessionContender:
    return SessionContender(scene, settings, backend, schedule, fuse)
