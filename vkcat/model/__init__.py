"""From a configuration to graphs."""

from vkcat.config import ModelConfig, StreamConfig
from vkcat.model.interface import Model, fused_for, fused_model, initial_weights
from vkcat.model.sequence import SequenceModel, build_sequence
from vkcat.model.stream import StreamModel, build_stream
from vkcat.model.transducer import TransducerModel, build_transducer


def build(config: ModelConfig, batch: int = 1) -> Model:
    """The graphs of `config` for `batch` streams side by side. Raises `InputError` unless there is at least one."""
    if not isinstance(config, StreamConfig):
        return build_transducer(config, batch)
    return build_stream(config, batch) if config.stack.streams else build_sequence(config, batch)


__all__ = [
    "Model",
    "SequenceModel",
    "StreamModel",
    "TransducerModel",
    "build",
    "build_sequence",
    "build_stream",
    "build_transducer",
    "fused_for",
    "fused_model",
    "initial_weights",
]
