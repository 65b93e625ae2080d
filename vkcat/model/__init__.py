"""From a configuration to graphs."""

from vkcat.config import ModelConfig, StreamConfig
from vkcat.model.at_once import with_rows
from vkcat.model.interface import Model, fused_for, fused_model, initial_weights
from vkcat.model.rows import Rows, lengths_input, reads_rows, stream_rows
from vkcat.model.sequence import SequenceModel, build_sequence, sequence_rows
from vkcat.model.stream import StreamModel, build_stream
from vkcat.model.transducer import TransducerModel, build_transducer


def build(config: ModelConfig, batch: int = 1) -> Model:
    """The graphs of `config` for `batch` streams side by side. Raises `InputError` unless there is at least one."""
    if not isinstance(config, StreamConfig):
        return build_transducer(config, batch)
    return build_stream(config, batch) if config.stack.streams else build_sequence(config, batch)


__all__ = [
    "Model",
    "Rows",
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
    "lengths_input",
    "reads_rows",
    "sequence_rows",
    "stream_rows",
    "with_rows",
]
