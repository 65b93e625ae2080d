"""What a value in a graph is known to be, and how the model it comes from is made."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from numpy.typing import NDArray

from vkcat.importers.gru_model import Layer
from vkcat.importers.onnx_gru.axes import Axes, Axis

Array = NDArray[Any]


class Constant(Struct, frozen=True, eq=False):
    array: Array


class Zeros(Struct, frozen=True):
    """Of whatever shape."""


class Dims(Struct, frozen=True):
    """Sizes as a vector of integers, or one of them as a scalar."""

    sizes: tuple[int | Axis, ...]
    scalar: bool = False


class Ids(Struct, frozen=True):
    """Integers that a graph's input gives."""

    axes: Axes
    name: str


class States(Struct, frozen=True):
    """What a GRU's state is at the end."""


class Features(Struct, frozen=True, eq=False):
    """A graph's input of numbers."""

    name: str


class Embedded(Struct, frozen=True, eq=False):
    """table (V, D)."""

    table: Array


class Product(Struct, frozen=True, eq=False):
    """weight (N, K), and a bias (N) unless none was added yet."""

    source: Source
    weight: Array
    bias: Array | None


class Recurrent(Struct, frozen=True, eq=False):
    """`time` and `batch` are the axes that its input had."""

    source: Source
    layer: Layer
    time: Axis
    batch: Axis


Source = Features | Embedded | Product | Recurrent


class Stream(Struct, frozen=True, eq=False):
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
