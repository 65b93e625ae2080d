"""Open a model folder: configuration, weights, graphs and what runs them in one call."""

from __future__ import annotations

from pathlib import Path

from vkcat.config import StreamConfig
from vkcat.device.interface import Device
from vkcat.model import build_transducer
from vkcat.runner import Runner
from vkcat.sequences.model import Sequences
from vkcat.session import Session
from vkcat.stored import read_model
from vkcat.transducer import Transducer


def load(
    folder: str | Path,
    device: Device | str | int | None = None,
    *,
    batch: int = 1,
    backend: str = "vulkan",
    schedule: str = "replay",
) -> Session | Sequences | Transducer:
    """The model in `folder` for `batch` streams: a `Session`; `Sequences` when a block reads in reverse or both ways;
    or a `Transducer` when it is an encoder-decoder.

    `device` is an open device, an index, a part of a name, None for the default one, or "reference" for float64 in
    NumPy. Raises `ModelError` for a folder that is not a model, `DeviceError` when it does not fit the device.
    """
    model = read_model(folder)
    if isinstance(model.config, StreamConfig):
        made = Session if model.config.stack.streams else Sequences
        return made(model, batch=batch, device=device, backend=backend, schedule=schedule)
    runner = Runner("load", device, backend, schedule)
    return Transducer(build_transducer(model.config, batch), model.weights, runner)
