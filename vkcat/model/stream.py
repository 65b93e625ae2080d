"""One stack over one stream: a graph for each kind of input, and one that feeds its own tokens back.

All read the same weights and go on with the same states, so tokens, patches and features follow each other in any
order. `generate` draws a token from the last step's logits first, then reads it: a stream's state and logits are all
that generation goes on from.
"""

from __future__ import annotations

from vkcat.blocks import Scope, Shared
from vkcat.blocks.scope import fan_in, normal
from vkcat.config import ContinuousOutput, Stack, StreamConfig, TokenOutput
from vkcat.errors import ModelError, mismatch
from vkcat.graph import Graph, Role, Tensor
from vkcat.model.interface import Model, mode_input
from vkcat.model.stack import embed, run_stack, scope_of

HISTORY = 128
"""Tokens that the device keeps for the host: those of two submissions at least."""

SAMPLING = {"seed": "uint32", "stream": "uint32", "temperature": "float32", "top_k": "uint32"}
"""What sampling is told of each stream, by dtype; see vkcat/ops/sample.py."""


class StreamModel(Model, frozen=True):
    """`inputs` are by name: `ids` (B); `patches` (B, P, K), `position` (B); `features` (B, F); and those of sampling.

    `outputs` (B, V) are each graph's. `logits` (B, V) is the state that generation draws from, `history` (B, HISTORY)
    the tokens it drew: see vkcat/ops/sample.py.
    """

    config: StreamConfig
    inputs: dict[str, Tensor]
    outputs: dict[str, Tensor]
    logits: Tensor | None
    history: Tensor | None

    @property
    def width(self) -> int:
        """Numbers in a step's output: logits, or the size of a continuous output."""
        return output_width(self.config.stack)


def output_width(stack: Stack) -> int:
    if isinstance(stack.output, ContinuousOutput):
        return stack.output.size
    assert stack.input is not None
    return stack.input.count


def add_head(scope: Scope, stack: Stack, y: Tensor) -> Tensor:
    """What the stack gives, as the output."""
    if isinstance(stack.output, ContinuousOutput) and not stack.output.projection:
        return y
    return scope.linear("output", y, output_width(stack), bias=fan_in(y.shape[-1]))


def project_features(scope: Scope, stack: Stack, given: Tensor) -> Tensor:
    """Features as the stream's input."""
    assert stack.features is not None
    if not stack.features.projection:
        return given
    return scope.linear("features", given, stack.width, bias=fan_in(given.shape[-1]))


def embed_patches(scope: Scope, stack: Stack, images: Tensor, position: Tensor) -> Tensor:
    """Patches of images (B, P, K), one at each position (R), as the stream's input."""
    read, width = stack.patches, stack.width
    assert read is not None
    (x,) = scope.graph.add(
        "patch_embedding",
        "patches",
        patches=images,
        position=position,
        w=scope.shared.matrix("patches.weight", width, read.pixels, initial=fan_in(read.pixels)),
        bias=scope.shared.weight("patches.bias", width, initial=fan_in(read.pixels)),
        places=scope.shared.weight("patches.places", read.count, width, initial=normal),
    )
    return x


class _Builder:
    """Adds graphs one by one."""

    def __init__(self, config: StreamConfig, batch: int) -> None:
        self.stack = config.stack
        self.batch = batch
        self.mode = mode_input(batch)
        self.shared = Shared(batch, config.dtype)
        self.inputs: dict[str, Tensor] = {}
        self.limits: dict[Tensor, int] = {}
        self.graphs: dict[str, Graph] = {}
        self.feeds: dict[str, tuple[Tensor, ...]] = {}
        self.outputs: dict[str, Tensor] = {}

    def input(self, name: str, *shape: int, dtype: str = "float32", limit: int | None = None) -> Tensor:
        self.inputs[name] = tensor = Tensor(name, (self.batch, *shape), dtype, Role.INPUT)
        if limit is not None:
            self.limits[tensor] = limit
        return tensor

    def scope(self, name: str) -> Scope:
        self.graphs[name] = Graph(name, self.shared.precision)
        return scope_of(self.graphs[name], self.mode, self.shared, self.stack)

    def finish(self, scope: Scope, x: Tensor, *feeds: Tensor) -> Tensor:
        """The stack over x (B, D) and its head; returns the output (B, V)."""
        y = add_head(scope, self.stack, run_stack(scope, "", self.stack, x))
        scope.graph.output(y)
        self.feeds[scope.graph.name] = feeds
        self.outputs[scope.graph.name] = y
        return y

    def tokens(self) -> None:
        assert self.stack.input is not None
        ids = self.input("ids", dtype="uint32", limit=self.stack.input.count)
        scope = self.scope("tokens")
        self.finish(scope, embed(scope, "", self.stack, ids), ids, self.mode)

    def patches(self) -> None:
        read = self.stack.patches
        assert read is not None
        images = self.input("patches", read.count, read.pixels)
        position = self.input("position", dtype="uint32", limit=read.count)
        scope = self.scope("patches")
        self.finish(scope, embed_patches(scope, self.stack, images, position), position, self.mode)

    def features(self) -> None:
        assert self.stack.features is not None
        given = self.input("features", self.stack.features.size)
        scope = self.scope("features")
        self.finish(scope, project_features(scope, self.stack, given), given, self.mode)

    def generate(self) -> tuple[Tensor, Tensor]:
        """The state of the logits, and the history of drawn tokens."""
        assert self.stack.input is not None
        count = self.stack.input.count
        logits = Tensor("logits", (self.batch, count), "float32", Role.STATE)
        sampling = {name: self.input(name, dtype=dtype) for name, dtype in SAMPLING.items()}
        token = self.shared.memory("token", dtype="uint32")
        drawn = self.shared.memory("drawn", dtype="uint32")
        history = self.shared.memory("history", HISTORY, dtype="uint32")
        self.limits[token] = count
        scope = self.scope("generate")
        kept = {"token": token, "position": drawn, "history": history}
        scope.graph.add("sample", "sample", logits=logits, **sampling, mode=self.mode, **kept)
        scope.graph.output(history)
        y = self.finish(scope, embed(scope, "", self.stack, token))
        scope.graph.carry(logits, y)
        return logits, history


def build_stream(config: StreamConfig, batch: int = 1) -> StreamModel:
    """The graphs of `config` for `batch` streams side by side.

    Raises `InputError` unless there is at least one, `ModelError` when a block does not read forward.
    """
    if not config.stack.streams:
        raise ModelError(
            mismatch(f"{config.name}: blocks", "forward ones in a stream", "another direction", "see vkcat.load")
        )
    builder = _Builder(config, batch)
    stack = config.stack
    logits = history = None
    if stack.input is not None:
        builder.tokens()
    if stack.patches is not None:
        builder.patches()
    if stack.features is not None:
        builder.features()
    if stack.input is not None and isinstance(stack.output, TokenOutput):
        logits, history = builder.generate()
    results = {name: (y,) for name, y in builder.outputs.items()}
    return StreamModel(
        batch=batch,
        graphs=builder.graphs,
        shared=builder.shared,
        mode=builder.mode,
        feeds=builder.feeds,
        results=results if history is None else results | {"generate": (history,)},
        limits=builder.limits,
        starts=() if logits is None else (logits,),
        config=config,
        inputs=builder.inputs,
        outputs=builder.outputs,
        logits=logits,
        history=history,
    )
