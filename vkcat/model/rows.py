"""Graphs that read T steps at once: rows in place of streams, row t B + b of stream b's step t.

Products take all rows together, so they read each weight once for all of them; only recurrences go from step to step.
Whatever sees one row alone is the same op as in a step.
"""

from __future__ import annotations

from msgspec import Struct

from vkcat.blocks import Scope
from vkcat.config import Stack
from vkcat.graph import Graph, Role, Tensor
from vkcat.model.stack import embed, finish_stack, run_blocks, scope_of
from vkcat.model.stream import StreamModel, add_head, embed_patches, project_features
from vkcat.ops import OPS


class Rows(Struct, frozen=True):
    """A graph over T steps; `lengths` (B) says how many of them are each stream's, if it matters.

    `inputs` are (R, ...). `outputs` are (R, ...), of every step, or (B, ...), of each stream's last.
    """

    graph: Graph
    inputs: tuple[Tensor, ...]
    lengths: Tensor | None
    outputs: tuple[Tensor, ...]


ROW_BINDINGS = max(len(kernel.shapes) for kernel in OPS.values() if "lengths" in kernel.shapes)
"""Storage buffers of the op that needs most: on a device with fewer, sequences are read step by step."""


def reads_rows(stack: Stack) -> bool:
    """Whether a stack can read several steps at once."""
    return all(block.reads_rows for block in stack.blocks)


def lengths_input(batch: int) -> Tensor:
    return Tensor("lengths", (batch,), "uint32", Role.INPUT)


def stream_rows(model: StreamModel, kind: str, steps: int) -> Rows:
    """The graph `kind` of a model over so many steps. It shares all that is kept.

    Of "tokens" (R), and of "patches" at positions (R) of the images that single steps read, it gives the outputs (B, V)
    of each stream's last, of "features" (R, F) those of every step (R, V).
    """
    stack, rows = model.config.stack, steps * model.batch
    graph = Graph(f"{kind} x {steps}", model.shared.precision)
    lengths = lengths_input(model.batch)
    scope = scope_of(graph, model.mode, model.shared, stack, lengths)
    given = model.feeds[kind][0]
    x = Tensor(given.name, (rows, *given.shape[1:]), given.dtype, Role.INPUT)
    h, context = run_blocks(scope, "", stack, _read(scope, model, kind, x))
    if kind != "features":
        (h,) = graph.add("last_row", "last", x=h, lengths=lengths)
        if context is not None:
            (context,) = graph.add("last_row", "last.context", x=context, lengths=lengths)
    y = add_head(scope, stack, finish_stack(scope, "", stack, h, context))
    graph.output(y)
    return Rows(graph, (x,), lengths, (y,))


def _read(scope: Scope, model: StreamModel, kind: str, x: Tensor) -> Tensor:
    """The input x of a graph `kind` as the stream's."""
    stack = model.config.stack
    if kind == "tokens":
        return embed(scope, "", stack, x)
    if kind == "patches":
        return embed_patches(scope, stack, model.inputs["patches"], x)
    return project_features(scope, stack, x)
