"""A stack of GRU blocks that read in reverse or both ways: graphs that go through whole sequences in turn.

Blocks of one direction run together, a step through all of them; a block after one that reads another way needs the
whole of what that one made.
"""

from __future__ import annotations

from msgspec import Struct

from vkcat.blocks import Scope, Shared, gru_block
from vkcat.blocks.scope import fan_in
from vkcat.config import ContinuousOutput, GruBlock, Stack, StreamConfig
from vkcat.graph import Graph, Role, Tensor
from vkcat.model.interface import Model, mode_input
from vkcat.model.rows import Rows, lengths_input
from vkcat.model.stack import embed, scope_of
from vkcat.model.stream import output_width

FORWARD = (False,)


class Pass(Struct, frozen=True):
    """A graph stepped through a sequence, forward or in reverse for each entry of `reversals`, side by side.

    `inputs` and `outputs` (B, ...) are one for each. The next reads the outputs of all, channel after channel.
    """

    graph: str
    reversals: tuple[bool, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class SequenceModel(Model, frozen=True):
    """`passes` in the order they run; the first reads ids (B) or features (B, F), the last gives (B, V)."""

    config: StreamConfig
    passes: tuple[Pass, ...]

    @property
    def width(self) -> int:
        """Numbers in a step's output."""
        return output_width(self.config.stack)


class _Builder:
    """Adds passes one by one, of single steps or of so many at a time."""

    def __init__(self, stack: Stack, mode: Tensor, shared: Shared, steps: int | None = None) -> None:
        self.stack, self.mode, self.shared, self.steps = stack, mode, shared, steps
        self.rows = shared.batch * (steps or 1)
        self.lengths = None if steps is None else lengths_input(shared.batch)
        self.graphs: dict[str, Graph] = {}
        self.passes: list[Pass] = []
        self.limits: dict[Tensor, int] = {}

    def scope(self, name: str) -> Scope:
        name = name if self.steps is None else f"{name} x {self.steps}"
        self.graphs[name] = Graph(name, self.shared.precision)
        return scope_of(self.graphs[name], self.mode, self.shared, self.stack, self.lengths)

    def input(self, name: str, *shape: int, dtype: str = "float32") -> Tensor:
        return Tensor(name, (self.rows, *shape), dtype, Role.INPUT)

    def finish(self, scope: Scope, reversals: tuple[bool, ...], inputs: list[Tensor], outputs: list[Tensor]) -> None:
        for tensor in outputs:
            scope.graph.output(tensor)
        self.passes.append(Pass(scope.graph.name, reversals, tuple(inputs), tuple(outputs)))

    def all(self) -> None:
        """Every pass of the stack."""
        stack, width, at = self.stack, self.stack.width, 0
        if stack.input is not None:
            self.tokens()
        elif stack.features is not None and stack.features.projection:
            self.linear("features", stack.features.size, width)
        for group in _together(stack):
            self.blocks(at, group, width)
            width = group[-1].hidden * len(group[-1].suffixes)
            at += len(group)
        if not isinstance(stack.output, ContinuousOutput) or stack.output.projection:
            self.linear("output", width, output_width(stack))

    def tokens(self) -> None:
        assert self.stack.input is not None
        ids = self.input("ids", dtype="uint32")
        self.limits[ids] = self.stack.input.count
        scope = self.scope("input")
        self.finish(scope, FORWARD, [ids], [embed(scope, "", self.stack, ids)])

    def linear(self, name: str, size: int, width: int) -> None:
        """x (B, size) through the weights `name`."""
        scope = self.scope(name)
        x = self.input(f"{name}.x", size)
        self.finish(scope, FORWARD, [x], [scope.linear(name, x, width, bias=fan_in(size))])

    def blocks(self, first: int, blocks: list[GruBlock], width: int) -> None:
        """Blocks of one direction, or one that reads both ways, over x (B, width) of each direction."""
        scope = self.scope(f"blocks.{first}")
        suffixes = blocks[0].suffixes
        inputs = [self.input(f"blocks.{first}.x{suffix}", width) for suffix in suffixes]
        streams = list(inputs)
        for at, block in enumerate(blocks, first):
            for d, suffix in enumerate(suffixes):
                streams[d] = gru_block(scope, f"blocks.{at}", block, streams[d], suffix)
        self.finish(scope, tuple(bool(suffix) for suffix in suffixes), inputs, streams)


def _together(stack: Stack) -> list[list[GruBlock]]:
    """Consecutive blocks of one direction; each that reads both ways by itself."""
    groups: list[list[GruBlock]] = []
    for block in stack.blocks:
        assert isinstance(block, GruBlock)
        if groups and block.direction == groups[-1][0].direction != "both":
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def build_sequence(config: StreamConfig, batch: int = 1) -> SequenceModel:
    """The graphs of `config` for `batch` sequences side by side. Raises `InputError` unless there is at least one.

    `config` has been checked: gru blocks, plain depth, no norm, and tokens or features alone.
    """
    builder = _Builder(config.stack, mode_input(batch), Shared(batch, config.dtype))
    builder.all()
    return SequenceModel(
        batch=batch,
        graphs=builder.graphs,
        shared=builder.shared,
        mode=builder.mode,
        feeds={each.graph: _feeds(builder, each) for each in builder.passes},
        results={each.graph: each.outputs for each in builder.passes},
        limits=builder.limits,
        starts=(),
        config=config,
        passes=tuple(builder.passes),
    )


def sequence_rows(model: SequenceModel, steps: int) -> dict[str, Rows]:
    """The passes of a model over so many steps at a time, by their graphs' names. They share all that is kept."""
    builder = _Builder(model.config.stack, model.mode, model.shared, steps)
    builder.all()
    made = {}
    for single, each in zip(model.passes, builder.passes, strict=True):
        graph = builder.graphs[each.graph]
        lengths = builder.lengths if builder.lengths in set(graph.tensors()) else None
        made[single.graph] = Rows(graph, each.inputs, lengths, each.outputs)
    return made


def _feeds(builder: _Builder, each: Pass) -> tuple[Tensor, ...]:
    """The pass's inputs, and the mode where its graph reads that."""
    reads = set(builder.graphs[each.graph].tensors())
    return (*each.inputs, builder.mode) if builder.mode in reads else each.inputs
