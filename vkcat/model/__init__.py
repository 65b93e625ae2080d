"""From a configuration to graphs."""

from vkcat.config import ModelConfig, StreamConfig
from vkcat.errors import ModelError, mismatch
from vkcat.model.at_once import with_rows
from vkcat.model.interface import Model, fused_for, fused_model, initial_weights
from vkcat.model.rows import ROW_BINDINGS, Rows, lengths_input, reads_rows, stream_rows
from vkcat.model.sequence import SequenceModel, build_sequence, sequence_rows
from vkcat.model.stream import StreamModel, build_stream
from vkcat.model.transducer import TransducerModel, build_transducer

MOST_BYTES = (1 << 32) - 1
"""Of a tensor: Vulkan's maxStorageBufferRange and the shaders' indices have 32 bits."""


def build(config: ModelConfig, batch: int = 1) -> Model:
    """The graphs of `config` for `batch` streams side by side.

    Raises `InputError` unless there is at least one, `ModelError` for a tensor whose size overflows 32 bits.
    """
    model: Model
    if not isinstance(config, StreamConfig):
        model = build_transducer(config, batch)
    else:
        model = build_stream(config, batch) if config.stack.streams else build_sequence(config, batch)
    for graph in model.graphs.values():
        for tensor in graph.tensors():
            if tensor.nbytes > MOST_BYTES:
                expected = f"at most {MOST_BYTES} bytes, of any tensor"
                raise ModelError(mismatch(f"{config.name}: {tensor.name}", expected, f"{tensor.nbytes} {tensor.shape}"))
    return model


__all__ = [
    "ROW_BINDINGS",
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
