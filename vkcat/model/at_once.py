"""A model with graphs that read several steps at once beside those of its steps, for whoever looks at all of them."""

from __future__ import annotations

from msgspec.structs import replace

from vkcat.model.interface import Model
from vkcat.model.rows import Rows, reads_rows, stream_rows
from vkcat.model.sequence import SequenceModel, sequence_rows
from vkcat.model.stream import StreamModel

KINDS = ("tokens", "patches", "features")


def with_rows(model: Model, steps: int) -> Model:
    """`model` and its graphs over so many steps, where it has any."""
    found = _rows(model, steps)
    limits = dict(model.limits)
    for single, rows in found.items():
        for tensor, rowed in zip(model.feeds[single], rows.inputs, strict=False):
            if tensor in model.limits:
                limits[rowed] = model.limits[tensor]
        if rows.lengths is not None:
            limits[rows.lengths] = steps + 1
    graphs = {rows.graph.name: rows.graph for rows in found.values()}
    return replace(model, graphs={**model.graphs, **graphs}, limits=limits)


def _rows(model: Model, steps: int) -> dict[str, Rows]:
    """By the names of the graphs of single steps."""
    if isinstance(model, StreamModel) and reads_rows(model.config.stack):
        return {kind: stream_rows(model, kind, steps) for kind in KINDS if kind in model.graphs}
    if isinstance(model, SequenceModel) and reads_rows(model.config.stack):
        return sequence_rows(model, steps)
    return {}
