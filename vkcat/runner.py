"""What runs a model's graphs: the device a user asked for, or the reference."""

from __future__ import annotations

import atexit
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.device.backends import BACKENDS, open_device
from vkcat.device.interface import Device, DeviceInfo
from vkcat.errors import DeviceError, InputError, VkcatWarning, mismatch
from vkcat.executor import Executor, Steps, Values
from vkcat.graph import Graph
from vkcat.model import Model, fused_for
from vkcat.reference import ReferenceExecutor
from vkcat.schedules import SCHEDULES, SUBMIT_LIMIT_MS

REFERENCE = "reference"


class Runner:
    """Makes what runs graphs.

    `device` is an open device, an index or a part of a name; None is the device that would be used by default, with a
    `VkcatWarning` when that is a CPU, and "reference" the float64 reference. What is opened here stays open until the
    process ends. Without `fuse` a device runs each node of a graph by itself, as the reference does. `submit_limit_ms`
    is how long a submission of many steps may take. Raises `InputError` for an unknown backend or schedule or a limit
    that is none, `DeviceError` when there is no such device.
    """

    def __init__(
        self,
        subject: str,
        device: Device | str | int | None,
        backend: str,
        schedule: str,
        *,
        fuse: bool = True,
        submit_limit_ms: float = SUBMIT_LIMIT_MS,
    ) -> None:
        if schedule not in SCHEDULES:
            raise InputError(mismatch(f"{subject}: schedule", f"one of {', '.join(SCHEDULES)}", repr(schedule)))
        if backend not in BACKENDS:
            raise InputError(mismatch(f"{subject}: backend", f"one of {', '.join(BACKENDS)}", repr(backend)))
        if not 0 < submit_limit_ms < math.inf:
            raise InputError(mismatch(f"{subject}: submit_limit_ms", "milliseconds above 0", submit_limit_ms))
        self._schedule, self._fuse, self.submit_limit_ms = schedule, fuse, submit_limit_ms
        self._device: Device | None = None
        if device is None or isinstance(device, (str, int)):
            wanted = str(device) if isinstance(device, int) else device
            if wanted != REFERENCE:
                self._device = _kept_device(backend, wanted)
        else:
            self._device = device

    @property
    def info(self) -> DeviceInfo | None:
        """The device's; None in the reference."""
        return self._device.info if self._device is not None else None

    @property
    def is_reference(self) -> bool:
        return self._device is None

    def binds(self, count: int) -> bool:
        """Whether there is a device, and its shaders may have so many storage buffers."""
        if self._device is None:
            return False
        return count <= self._device.info.limits.max_per_stage_descriptor_storage_buffers

    @property
    def dtype(self) -> type[np.floating[Any]]:
        """What states are in: float64 in the reference."""
        return np.float64 if self._device is None else np.float32

    def __call__(self, graphs: Sequence[Graph], values: Values | None = None) -> Steps:
        """What runs the graphs, with `values` written: see `Executor`."""
        if self._device is None:
            return ReferenceExecutor(graphs, values)
        planned = self.planned(graphs)
        return Executor(self._device, planned, self._schedule, values=values, submit_limit_ms=self.submit_limit_ms)

    def planned(self, graphs: Sequence[Graph]) -> Sequence[Graph]:
        """The graphs as they are run."""
        return fused_for(self._device.info, graphs) if self._device is not None and self._fuse else graphs


def started(runner: Runner, model: Model, weights: Mapping[str, NDArray[Any]]) -> Steps:
    """What runs the graphs of `model`, with everything written that is set once. Raises `ModelError`."""
    return runner(tuple(model.graphs.values()), model.values(weights))


_kept: dict[tuple[str, str | None], Device] = {}


def _kept_device(backend: str, wanted: str | None) -> Device:
    """The one that was opened before, unless it can no longer be used: lost, closed, or another process's."""
    device = _kept.get((backend, wanted))
    if device is not None:
        try:
            device.check_open()
            return device
        except DeviceError:
            device.close()
    device = _kept[backend, wanted] = open_device(backend, wanted)
    if not wanted and device.info.kind == "cpu":
        # Perhaps a GPU's driver is missing, and all that shows it is time.
        remedy = "see `vkcat devices`; of a device that is named nothing is said"
        warnings.warn(mismatch("device", "a GPU", f"{device.info.name}, a CPU", remedy), VkcatWarning, stacklevel=4)
    atexit.register(device.close)
    return device


@contextmanager
def opened(
    subject: str, device: str | None, backend: str, schedule: str, *, fuse: bool, submit_limit_ms: float
) -> Iterator[Runner]:
    """A runner on a device that is opened for this block alone."""
    if device == REFERENCE:
        yield Runner(subject, device, backend, schedule)
        return
    with closing(open_device(backend, device)) as made:
        yield Runner(subject, made, backend, schedule, fuse=fuse, submit_limit_ms=submit_limit_ms)
