"""Which graphs of a model a session runs: those of single steps, and those that read sequences in pieces."""

from __future__ import annotations

from vkcat.chunks import MOST_ROWS, SIZES
from vkcat.graph import Graph
from vkcat.model import Model, with_rows


def graphs_run(model: Model) -> tuple[Graph, ...]:
    """Each piece's size has products of its own: their sizes are rows times streams."""
    for steps in SIZES:
        if steps * model.batch <= MOST_ROWS:
            model = with_rows(model, steps)
    return tuple(model.graphs.values())
