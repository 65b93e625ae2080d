"""From a configuration to graphs."""

from vkcat.config import ModelConfig, StreamConfig
from vkcat.model.interface import Model, initial_weights
from vkcat.model.stream import StreamModel, build_stream
from vkcat.model.transducer import TransducerModel, build_transducer


def build(config: ModelConfig, batch: int = 1) -> Model:
    """The graphs of `config` for `batch` streams side by side. Raises `InputError` unless there is at least one."""
    return build_stream(config, batch) if isinstance(config, StreamConfig) else build_transducer(config, batch)


__all__ = [
    "Model",
    "StreamModel",
    "TransducerModel",
    "build",
    "build_stream",
    "build_transducer",
    "initial_weights",
]
