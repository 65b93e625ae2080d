"""Variants of a configuration along one size, for seeing how a step's time grows with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from vkcat.config import ModelConfig, parse, to_json
from vkcat.config.blocks import Block, ExpertsBlock
from vkcat.config.model import StreamConfig
from vkcat.config.stack import ContinuousOutput, Stack
from vkcat.errors import InputError, mismatch


def width(config: ModelConfig) -> int:
    """Of the stream, or of the encoder's."""
    return config.stack.width if isinstance(config, StreamConfig) else config.encoder.width


def with_hidden(config: ModelConfig, hidden: int) -> ModelConfig:
    """The (encoder's) stream `hidden` wide, and every block's sizes in the same proportion; counts of heads, experts
    and steps stay. Raises `ModelError` when that makes no model."""
    factor = hidden / width(config)
    return _each_stack(config, lambda stack: _scaled_stack(stack, factor))


def with_layers(config: ModelConfig, layers: int) -> ModelConfig:
    """So many blocks: the configuration's over and over, or its first ones. Raises `ModelError`."""
    return _each_stack(config, lambda stack: replace(stack, blocks=_repeated(stack.blocks, layers)))


def with_experts(config: ModelConfig, experts: int) -> ModelConfig:
    """So many experts in each block that has some. Raises `InputError` when none has, or `ModelError`."""
    stacks = [config.stack] if isinstance(config, StreamConfig) else [config.encoder, config.decoder]
    if not any(isinstance(block, ExpertsBlock) for stack in stacks for block in stack.blocks):
        raise InputError(mismatch("--sweep experts", "a configuration with experts", config.name))

    def changed(stack: Stack) -> Stack:
        blocks = tuple(replace(one, experts=experts) if isinstance(one, ExpertsBlock) else one for one in stack.blocks)
        return replace(stack, blocks=blocks)

    return _each_stack(config, changed)


AXES: Mapping[str, Callable[[ModelConfig, int], ModelConfig]] = {
    "hidden": with_hidden,
    "layers": with_layers,
    "experts": with_experts,
}
"""By name, what makes a configuration of another size."""


def _each_stack(config: ModelConfig, change: Callable[[Stack], Stack]) -> ModelConfig:
    """Read back from what it is written as, so that every check of a file is made."""
    made: ModelConfig
    if isinstance(config, StreamConfig):
        made = replace(config, stack=change(config.stack))
    else:
        made = replace(config, encoder=change(config.encoder), decoder=change(config.decoder))
    return parse(to_json(made), config.name)


def _repeated(blocks: tuple[Block, ...], count: int) -> tuple[Block, ...]:
    return tuple(blocks[at % len(blocks)] for at in range(count))


def _scaled_stack(stack: Stack, factor: float) -> Stack:
    def of(size: int) -> int:
        return max(round(size * factor), 1) if size else 0

    made = replace(stack, width=of(stack.width), blocks=tuple(_scaled(block, of) for block in stack.blocks))
    if made.features is not None and not made.features.projection:
        made = replace(made, features=replace(made.features, size=made.width))
    if isinstance(made.output, ContinuousOutput) and not made.output.projection:
        made = replace(made, output=replace(made.output, size=made.last_width))
    return made


def _scaled(block: Block, of: Callable[[int], int]) -> Block:
    return replace(block, **{name: of(getattr(block, name)) for name in block.wide})
