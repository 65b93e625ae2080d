"""Nodes that only rearrange, or compute shapes: each is followed, none is taken for granted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from vkcat.errors import ModelError, mismatch
from vkcat.importers.gru_model import Layer
from vkcat.importers.onnx_gru.axes import (
    DIRECTION,
    Axes,
    Axis,
    Factor,
    index_of,
    reshaped,
    shown,
    squeezed,
    transposed,
    unsqueezed,
)
from vkcat.importers.onnx_gru.file import Node
from vkcat.importers.onnx_gru.values import Constant, Dims, Ids, Recurrent, States, Stream, Value, Zeros, kind_of

Values = Sequence[Value | None]
FLOAT = 1
"""TensorProto.FLOAT: what a stream is computed in."""


def unfit(node: Node, expected: str, got: object) -> ModelError:
    return ModelError(mismatch(node.where, expected, got))


def given(values: Values, at: int) -> Value | None:
    return values[at] if at < len(values) else None


def integers(node: Node, values: Values, at: int, name: str) -> list[int] | None:
    """Of an attribute, as they were once, or of a constant input."""
    if name in node.attributes:
        return [int(number) for number in node.attributes[name]]
    value = given(values, at)
    if value is None:
        return None
    if not isinstance(value, Constant) or value.array.dtype.kind not in "iu":
        raise ModelError(mismatch(f"{node.where}: {name}", "constant integers", kind_of(value)))
    return [int(number) for number in value.array.reshape(-1)]


def _moved(node: Node, value: Value | None, move: Callable[[Axes], Axes]) -> Value:
    """`move` says what becomes of the axes of ids or of a stream."""
    if isinstance(value, Ids):
        return Ids(move(value.axes), value.name)
    if isinstance(value, Stream):
        return Stream(move(value.axes), value.source)
    if isinstance(value, Zeros | States):
        return value
    raise unfit(node, "the input, or what is computed from it", kind_of(value))


def transpose(node: Node, values: Values) -> Value:
    order = node.attributes.get("perm")
    return _moved(
        node,
        values[0],
        lambda axes: transposed(node.where, axes, range(len(axes))[::-1] if order is None else order),
    )


def squeeze(node: Node, values: Values) -> Value:
    which = integers(node, values, 1, "axes")
    if isinstance(values[0], Dims) and which in (None, [0]) and len(values[0].sizes) == 1:
        return Dims(values[0].sizes, scalar=True)
    return _moved(node, values[0], lambda axes: squeezed(node.where, axes, which))


def unsqueeze(node: Node, values: Values) -> Value:
    which = integers(node, values, 1, "axes") or []
    if isinstance(values[0], Dims) and values[0].scalar and which == [0]:
        return Dims(values[0].sizes)
    return _moved(node, values[0], lambda axes: unsqueezed(node.where, axes, which))


def reshape(node: Node, values: Values) -> Value:
    sizes = dims(given(values, 1))
    if sizes is None:
        raise ModelError(mismatch(f"{node.where}: shape", "sizes", kind_of(given(values, 1))))
    zero_copies = not node.attributes.get("allowzero", 0)
    return _moved(node, values[0], lambda axes: reshaped(node.where, axes, sizes.sizes, zero_copies=zero_copies))


def dims(value: Value | None) -> Dims | None:
    """A shape, also of constant integers."""
    if isinstance(value, Dims):
        return value
    if isinstance(value, Constant) and value.array.dtype.kind in "iu" and value.array.ndim <= 1:
        return Dims(tuple(int(size) for size in value.array.reshape(-1)), scalar=value.array.ndim == 0)
    return None


def identity(node: Node, values: Values) -> Value:
    value = values[0]
    if value is None:
        raise unfit(node, "an input", "none")
    return value


def cast(node: Node, values: Values) -> Value:
    """Ids and shapes to other integers, numbers to float32."""
    to = node.attributes["to"]
    value = identity(node, values)
    if isinstance(value, Stream) and to != FLOAT:
        raise unfit(node, "a cast to float32", f"to data type {to}")
    if isinstance(value, Ids | Dims) and to not in _INTEGERS:
        raise unfit(node, "a cast to integers", f"to data type {to}")
    return value


_INTEGERS = (2, 3, 4, 5, 6, 7, 12, 13)
"""TensorProto's UINT8, INT8, UINT16, INT16, INT32, INT64, UINT32, UINT64."""


def shape(node: Node, values: Values) -> Value:
    value = values[0]
    if not isinstance(value, Ids | Stream):
        raise unfit(node, "the shape of the input, or of what is computed from it", f"that of {kind_of(value)}")
    return Dims(value.axes[node.attributes.get("start", 0) : node.attributes.get("end")])


def take_dims(node: Node, sizes: Dims, value: Value | None) -> Value:
    """Gather from a shape."""
    if sizes.scalar or not isinstance(value, Constant) or value.array.dtype.kind not in "iu" or value.array.ndim > 1:
        raise unfit(node, "constant places in a shape", kind_of(value))
    places = value.array.reshape(-1)
    if any(not -len(sizes.sizes) <= place < len(sizes.sizes) for place in places):
        raise unfit(node, f"places in a shape of {len(sizes.sizes)}", places.tolist())
    return Dims(tuple(sizes.sizes[int(place)] for place in places), scalar=value.array.ndim == 0)


def slice_(node: Node, values: Values) -> Value:
    """Of zeros, or of a shape: steps of a sequence are not for a model to choose."""
    value = values[0]
    if isinstance(value, Zeros):
        return value
    if isinstance(value, Dims) and not value.scalar:
        begin, end = integers(node, values, 1, "starts"), integers(node, values, 2, "ends")
        step = integers(node, values, 4, "steps")
        if begin and end and step in (None, [1]):
            return Dims(value.sizes[begin[0] : end[0]])
    raise unfit(node, "a slice of zeros or of a shape", kind_of(value))


def zeros(node: Node, values: Values) -> Value:
    """ConstantOfShape, whatever the shape."""
    del values
    filled = node.attributes.get("value", np.zeros(1, np.float32))
    if np.any(filled):
        raise unfit(node, "zeros", filled.reshape(-1).tolist())
    return Zeros()


def expand(node: Node, values: Values) -> Value:
    value = values[0]
    if isinstance(value, Zeros) or (isinstance(value, Constant) and not value.array.any()):
        return Zeros()
    raise unfit(node, "zeros to expand", kind_of(value))


def concat(node: Node, values: Values) -> Value:
    """Shapes; zeros and last states; or the two directions of a layer that are two nodes."""
    if all(isinstance(value, Zeros) for value in values):
        return Zeros()
    if all(isinstance(value, States) for value in values):
        return States()
    parts = [dims(value) for value in values]
    if all(part is not None and not part.scalar for part in parts):
        return Dims(tuple(size for part in parts if part is not None for size in part.sizes))
    if len(values) == 2:
        first, second = values
        if isinstance(first, Stream) and isinstance(second, Stream):
            return _both_directions(node, first, second)
    raise unfit(node, "a layer's forward and reverse outputs", ", ".join(kind_of(value) for value in values))


def _both_directions(node: Node, first: Stream, second: Stream) -> Value:
    forward, reverse = first.source, second.source
    if not isinstance(forward, Recurrent) or not isinstance(reverse, Recurrent):
        raise unfit(node, "the outputs of two GRU nodes", "others")
    directions = (forward.layer.direction, reverse.layer.direction)
    if directions != ("forward", "reverse"):
        raise unfit(node, "a forward GRU, then a reverse one", ", ".join(directions))
    if forward.source is not reverse.source or (forward.time, forward.batch) != (reverse.time, reverse.batch):
        raise unfit(node, "two GRUs of one input", "of two")
    if forward.layer.reset != reverse.layer.reset or first.axes != second.axes:
        raise unfit(node, f"two GRUs alike, with outputs {shown(first.axes)}", shown(second.axes))
    at = index_of(node.where, int(node.attributes.get("axis", 1)), len(first.axes))
    axis = first.axes[at]
    if not all(factor.counts_channels for factor in axis):
        raise unfit(node, "channels side by side", f"axis {at} of {shown(first.axes)}")
    side: Axis = (Factor(DIRECTION, 2), *axis)
    layer = Layer("both", forward.layer.reset, (*forward.layer.cells, *reverse.layer.cells))
    axes = (*first.axes[:at], side, *first.axes[at + 1 :])
    return Stream(axes, Recurrent(forward.source, layer, forward.time, forward.batch))
