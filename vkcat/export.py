"""Weights of a model as torch's modules name them.

A stack of GRU blocks alone is a module with `embedding` (nn.Embedding), `gru` (nn.GRU) and `output` (nn.Linear). Any
other model's names are a tree of modules already: nn.GRUCell, nn.Linear, nn.RMSNorm, and parameters by themselves where
torch has no module of that shape; a short convolution is an nn.Conv1d with groups = channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import save_file

from vkcat.config import GruBlock, NoNorm, PlainDepth, Stack, StreamConfig, TransducerConfig
from vkcat.errors import InputError, ModelError, mismatch
from vkcat.files import replaced
from vkcat.stored import StoredModel

Array = NDArray[Any]


def export(model: StoredModel, path: Path) -> dict[str, Array]:
    """Write a safetensors file of `state_dict(model)`, whole or not at all, and return that.

    Raises `ModelError` when torch has no such modules, `InputError` when the file cannot be written.
    """
    tensors = state_dict(model)
    with replaced(path) as temporary:
        try:
            # The metadata is what torch's own files have.
            save_file(tensors, temporary, metadata={"format": "pt"})
        except SafetensorError as error:
            raise InputError(mismatch(str(path), "a file that can be written", str(error))) from error
    return tensors


def state_dict(model: StoredModel) -> dict[str, Array]:
    """Arrays (float32) by torch's names. Raises `ModelError`."""
    config = model.config
    for where, stack in _stacks(config):
        _check_resets(where, stack)
    names: Mapping[str, str] = {}
    if isinstance(config, StreamConfig):
        if _is_gru(config.stack):
            names = _gru_names(config.stack)
        elif not config.stack.streams:
            expected = "blocks of one size, all forward or all both ways, as torch.nn.GRU has"
            raise ModelError(mismatch(f"{config.name}: blocks", expected, _directions(config.stack)))
    return {names.get(name, name): _as_torch_has_it(name, array) for name, array in model.weights.items()}


def _as_torch_has_it(name: str, array: Array) -> Array:
    """A depthwise nn.Conv1d's weight has an axis for the one input channel of each group."""
    return np.ascontiguousarray(array[:, None] if name.endswith(".convolution.weight") else array)


def _stacks(config: StreamConfig | TransducerConfig) -> Iterator[tuple[str, Stack]]:
    if isinstance(config, StreamConfig):
        yield f"{config.name}: blocks", config.stack
    else:
        yield f"{config.name}: encoder.blocks", config.encoder
        yield f"{config.name}: decoder.blocks", config.decoder


def _check_resets(where: str, stack: Stack) -> None:
    for at, block in enumerate(stack.blocks):
        if isinstance(block, GruBlock) and block.reset != "after":
            expected = "'after', the only one of torch.nn.GRU"
            raise ModelError(mismatch(f"{where}[{at}].reset", expected, repr(block.reset)))


def _is_gru(stack: Stack) -> bool:
    """Whether its blocks are the layers of one torch.nn.GRU."""
    first = stack.blocks[0]
    same = isinstance(first, GruBlock) and all(block == first for block in stack.blocks)
    plain = isinstance(stack.depth, PlainDepth) and isinstance(stack.norm, NoNorm)
    return same and plain and isinstance(first, GruBlock) and first.direction != "reverse"


def _gru_names(stack: Stack) -> dict[str, str]:
    names = {"input.weight": "embedding.weight"}
    for at, block in enumerate(stack.blocks):
        assert isinstance(block, GruBlock)
        for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
            names |= {f"blocks.{at}.{kind}{suffix}": f"gru.{kind}_l{at}{suffix}" for suffix in block.suffixes}
    return names


def _directions(stack: Stack) -> str:
    shown = [f"{block.direction} {block.hidden}" for block in stack.blocks if isinstance(block, GruBlock)]
    return ", ".join(shown)
