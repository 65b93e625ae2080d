"""What a value in a graph is known to be, and how the model it comes from is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from vkcat.importers.gru_model import Layer
from vkcat.importers.onnx_gru.axes import Axes, Axis

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Constant:
    array: Array


@dataclass(frozen=True)
class Zeros:
    """Of whatever shape."""


@dataclass(frozen=True)
class Dims:
    """Sizes as a vector of integers, or one of them as a scalar."""

    sizes: tuple[int | Axis, ...]
    scalar: bool = False


@dataclass(frozen=True)
class Ids:
    """Integers that a graph's input gives."""

    axes: Axes
    name: str


@dataclass(frozen=True)
class States:
    """What a GRU's state is at the end."""


@dataclass(frozen=True, eq=False)
class Features:
    """A graph's input of numbers."""

    name: str


@dataclass(frozen=True, eq=False)
class Embedded:
    """table (V, D)."""

    table: Array


@dataclass(frozen=True, eq=False)
class Product:
    """weight (N, K), and a bias (N) unless none was added yet."""

    source: Source
    weight: Array
    bias: Array | None


@dataclass(frozen=True, eq=False)
class Recurrent:
    """`time` and `batch` are the axes that its input had."""

    source: Source
    layer: Layer
    time: Axis
    batch: Axis


Source = Features | Embedded | Product | Recurrent


@dataclass(frozen=True, eq=False)
class Stream:
    """Numbers at every step."""

    axes: Axes
    source: Source


Value = Constant | Zeros | Dims | Ids | States | Stream


def kind_of(value: Value | None) -> str:
    """For errors."""
    names = {
        Constant: "a constant",
        Zeros: "zeros",
        Dims: "a shape",
        Ids: "the input of ids",
        States: "a GRU's last state",
        Stream: "what is computed at each step",
    }
    if isinstance(value, Stream) and isinstance(value.source, Features):
        return f"the input {value.source.name}"
    if isinstance(value, Ids):
        return f"the input {value.name}"
    return "nothing" if value is None else names[type(value)]
