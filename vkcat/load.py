"""Open a model folder: configuration, weights, graphs and a session in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from vkcat.config import load_config
from vkcat.device.interface import Device
from vkcat.executor import Executor, Steps
from vkcat.graph import Graph
from vkcat.model import Model, build
from vkcat.reference import ReferenceExecutor
from vkcat.session import Session
from vkcat.weights import load_weights


def load_model(folder: Path, batch: int = 1) -> tuple[Model, dict[str, NDArray[Any]]]:
    """Graphs for `batch` streams, and weights. Raises `ModelError`."""
    model = build(load_config(folder), batch)
    return model, load_weights(folder, model.weights)


def load(folder: str | Path, device: Device | None = None, *, batch: int = 1, schedule: str = "replay") -> Session:
    """A session of the model in `folder`, on an open device or, without one, in the float64 reference.

    Raises `ModelError` for a folder that is not a model, `DeviceError` when it does not fit the device.
    """
    model, weights = load_model(Path(folder), batch)

    def runner(graphs: Sequence[Graph]) -> Steps:
        return ReferenceExecutor(graphs) if device is None else Executor(device, graphs, schedule)

    return Session(model, weights, runner)
