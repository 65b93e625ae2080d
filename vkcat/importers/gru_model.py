"""A GRU model as importers find it, whatever its file: embedding or features, layers, an output layer."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from numpy.typing import NDArray

from vkcat.config import (
    ContinuousOutput,
    EmbeddingInput,
    FeaturesInput,
    GruBlock,
    Stack,
    StreamConfig,
    TokenOutput,
    parse,
    to_json,
)
from vkcat.importers.symbols import Symbols
from vkcat.sequences.conventions import Cell
from vkcat.stored import StoredModel

Array = NDArray[Any]


class Layer(Struct, frozen=True):
    """A GRU layer of `direction` forward, reverse or both, with a cell for each; `reset` as in `GruBlock`."""

    direction: str
    reset: str
    cells: tuple[Cell, ...]

    @property
    def hidden(self) -> int:
        return self.cells[0].hidden

    @property
    def block(self) -> GruBlock:
        return GruBlock(hidden=self.hidden, reset=self.reset, direction=self.direction)

    @property
    def inputs(self) -> int:
        return int(self.cells[0].w_ih.shape[1])

    @property
    def width(self) -> int:
        """Channels of what it gives."""
        return self.hidden * len(self.cells)


class Imported(Struct, frozen=True):
    """`notes` say what of the file is not in the model as it was."""

    model: StoredModel
    notes: tuple[str, ...]


class Linear(Struct, frozen=True):
    """weight (N, K), bias (N)."""

    weight: Array
    bias: Array


class GruModel(Struct, frozen=True):
    """`table` (V, D) is of an embedding; without one the model reads features, through `projection` or as they are.

    Sizes have been checked against each other.
    """

    layers: tuple[Layer, ...]
    table: Array | None
    projection: Linear | None
    output: Linear | None

    def stored(self, name: str, subject: str, symbols: Symbols | None) -> StoredModel:
        """Configuration and weights. An output as wide as the embedding has symbols gives tokens, where a stream can.

        Raises `ModelError` beginning with `subject` when a size is beyond what a configuration may say.
        """
        config = StreamConfig(name, self._stack(symbols))
        parse(to_json(config), subject)
        return StoredModel(config, self._weights())

    def _stack(self, symbols: Symbols | None) -> Stack:
        width = self.layers[0].inputs
        blocks = tuple(layer.block for layer in self.layers)
        forward = all(layer.direction == "forward" for layer in self.layers)
        embedding = features = None
        if self.table is not None:
            embedding = EmbeddingInput(symbols=len(self.table) if symbols is None else symbols)
        else:
            size = width if self.projection is None else self.projection.weight.shape[1]
            features = FeaturesInput(size=size, projection=self.projection is not None)
        output: TokenOutput | ContinuousOutput
        if self.output is None:
            output = ContinuousOutput(size=self.layers[-1].width, projection=False)
        elif forward and embedding is not None and len(self.output.weight) == embedding.count:
            output = TokenOutput()
        else:
            output = ContinuousOutput(size=len(self.output.weight))
        return Stack(width=width, blocks=blocks, input=embedding, features=features, output=output)

    def _weights(self) -> dict[str, Array]:
        weights = {} if self.table is None else {"input.weight": self.table}
        for name, linear in (("features", self.projection), ("output", self.output)):
            if linear is not None:
                weights |= {f"{name}.weight": linear.weight, f"{name}.bias": linear.bias}
        for at, layer in enumerate(self.layers):
            for cell, suffix in zip(layer.cells, layer.block.suffixes, strict=True):
                names = {"weight_ih": cell.w_ih, "weight_hh": cell.w_hh, "bias_ih": cell.b_ih, "bias_hh": cell.b_hh}
                weights |= {f"blocks.{at}.{key}{suffix}": array for key, array in names.items()}
        return weights
