"""Nodes that compute: embedding lookup, linear layers, GRU."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from vkcat.errors import ModelError, mismatch
from vkcat.importers.gru_model import Layer
from vkcat.importers.onnx_gru.axes import CHANNEL, DIRECTION, HIDDEN, Axis, Factor, shown, size_of
from vkcat.importers.onnx_gru.file import Node
from vkcat.importers.onnx_gru.rearrange import Values, given, take_dims, unfit
from vkcat.importers.onnx_gru.values import (
    Array,
    Constant,
    Dims,
    Embedded,
    Ids,
    Product,
    Recurrent,
    States,
    Stream,
    Value,
    Zeros,
    kind_of,
)
from vkcat.importers.tensors import finite
from vkcat.sequences.conventions import onnx_cells

DIRECTIONS = {"forward": "forward", "reverse": "reverse", "bidirectional": "both"}


def weights(node: Node, name: str, value: Value | None, dimensions: int) -> Array:
    """A constant as finite float32."""
    where = f"{node.where}: {name}"
    if not isinstance(value, Constant):
        raise ModelError(mismatch(where, "weights of the file", kind_of(value)))
    if value.array.dtype.kind != "f" or value.array.ndim != dimensions or 0 in value.array.shape:
        got = f"{value.array.dtype} {value.array.shape}"
        raise ModelError(mismatch(where, f"floating-point numbers of {dimensions} dimensions", got))
    return finite(value.array, where)


def gather(node: Node, values: Values) -> Value:
    """Rows of an embedding's table, or sizes of a shape."""
    table, ids = values[0], values[1]
    if isinstance(table, Dims):
        return take_dims(node, table, ids)
    if not isinstance(table, Constant) or not isinstance(ids, Ids):
        raise unfit(node, "rows of a constant table by ids of the input", f"{kind_of(table)} by {kind_of(ids)}")
    if node.attributes.get("axis", 0) != 0:
        raise ModelError(mismatch(f"{node.where}: axis", 0, node.attributes["axis"]))
    rows = weights(node, "data", table, 2)
    return Stream((*ids.axes, (Factor(CHANNEL, rows.shape[1]),)), Embedded(rows))


def matmul(node: Node, values: Values) -> Value:
    x, w = values[0], values[1]
    if not isinstance(x, Stream):
        raise unfit(node, "what is computed at each step, by weights", f"{kind_of(x)} by {kind_of(w)}")
    return _product(node, x, weights(node, "B", w, 2).T, None)


def gemm(node: Node, values: Values) -> Value:
    for name, plain in (("alpha", 1.0), ("beta", 1.0), ("transA", 0)):
        if node.attributes.get(name, plain) != plain:
            raise ModelError(mismatch(f"{node.where}: {name}", plain, node.attributes[name]))
    x = values[0]
    if not isinstance(x, Stream) or len(x.axes) != 2:
        raise unfit(node, "steps by channels", kind_of(x) if not isinstance(x, Stream) else shown(x.axes))
    w = weights(node, "B", values[1], 2)
    w = w if node.attributes.get("transB", 0) else w.T
    c = given(values, 2)
    return _product(node, x, w, None if c is None else _row(node, "C", c, len(w)))


def _product(node: Node, x: Stream, w: Array, bias: Array | None) -> Stream:
    if w.shape[1] != _channels(node, x):
        raise unfit(node, f"weights for the {_channels(node, x)} channels of {shown(x.axes)}", f"for {w.shape[1]}")
    made = Product(x.source, np.ascontiguousarray(w), bias)
    return Stream((*x.axes[:-1], (Factor(CHANNEL, len(w)),)), made)


def _channels(node: Node, x: Stream) -> int:
    """Of the last axis, which must hold all of them in order."""
    wanted = [factor for factor in channels(x) if factor.size != 1]
    last = [factor for factor in x.axes[-1] if factor.size != 1] if x.axes else []
    if None in [factor.size for factor in wanted]:
        raise unfit(node, "a known number of channels", shown(x.axes))
    if last != wanted or [factor.label for factor in wanted] != sorted(factor.label for factor in wanted):
        raise unfit(node, "all channels, direction by direction, in the last axis", shown(x.axes))
    return size_of(tuple(wanted))[0]


def channels(x: Stream) -> list[Factor]:
    """All factors that count channels, axis by axis."""
    return [factor for axis in x.axes for factor in axis if factor.counts_channels]


def add(node: Node, values: Values) -> Value:
    """The bias of a linear layer."""
    x, b = values if isinstance(values[0], Stream) else values[::-1]
    if not isinstance(x, Stream) or not isinstance(x.source, Product) or x.source.bias is not None:
        raise unfit(node, "a bias after MatMul", f"{kind_of(values[0])} and {kind_of(values[1])}")
    if not isinstance(b, Constant) or b.array.ndim > len(x.axes):
        raise unfit(node, "a constant bias", kind_of(b))
    return Stream(x.axes, replace(x.source, bias=_row(node, "bias", b, len(x.source.weight))))


def _row(node: Node, name: str, value: Value, width: int) -> Array:
    """A constant that is the same in every row, as (width)."""
    array = value.array if isinstance(value, Constant) else None
    if array is None or array.size not in (1, width) or (array.ndim and array.shape[-1] != array.size):
        got = kind_of(value) if array is None else array.shape
        raise ModelError(mismatch(f"{node.where}: {name}", (width,), got))
    flat = weights(node, name, Constant(array.reshape(-1)), 1)
    return np.ascontiguousarray(np.broadcast_to(flat, width))


def gru(node: Node, values: Values) -> tuple[Value, ...]:
    """Y and Y_h."""
    x = values[0]
    direction = node.attributes.get("direction", "forward")
    if direction not in DIRECTIONS:
        raise ModelError(mismatch(f"{node.where}: direction", " or ".join(DIRECTIONS), repr(direction)))
    count = 2 if direction == "bidirectional" else 1
    _check_plain(node, values, count)
    if not isinstance(x, Stream) or len(x.axes) != 3:
        raise unfit(node, "a stream of three axes", shown(x.axes) if isinstance(x, Stream) else kind_of(x))
    batch_first = node.attributes.get("layout", 0) == 1
    time, batch = (x.axes[1], x.axes[0]) if batch_first else (x.axes[0], x.axes[1])
    _check_axes(node, x, time, batch)
    layer = _layer(node, values, DIRECTIONS[direction], count, _channels(node, x))
    directions: Axis = (Factor(DIRECTION, 2),) if count == 2 else ()
    hidden: Axis = (Factor(HIDDEN, layer.hidden),)
    axes = (batch, time, directions, hidden) if batch_first else (time, directions, batch, hidden)
    return Stream(axes, Recurrent(x.source, layer, time, batch)), States()


def _check_plain(node: Node, values: Values, count: int) -> None:
    """That nothing is asked for which a layer here has not."""
    activations = node.attributes.get("activations")
    if activations is not None and [name.lower() for name in activations] != ["sigmoid", "tanh"] * count:
        raise ModelError(mismatch(f"{node.where}: activations", "Sigmoid, Tanh", ", ".join(activations)))
    for name in ("activation_alpha", "activation_beta", "clip"):
        if name in node.attributes:
            raise ModelError(mismatch(f"{node.where}: {name}", "none", node.attributes[name]))
    lengths = given(values, 4)
    if lengths is not None:
        remedy = "give lengths to vkcat.Sequences.run"
        raise ModelError(mismatch(f"{node.where}: sequence_lens", "none", kind_of(lengths), remedy))
    state = given(values, 5)
    zero = state is None or isinstance(state, Zeros) or (isinstance(state, Constant) and not state.array.any())
    if not zero:
        raise ModelError(mismatch(f"{node.where}: initial_h", "none, or zeros", kind_of(state)))


def _check_axes(node: Node, x: Stream, time: Axis, batch: Axis) -> None:
    """Time and batch are an axis of the input each, and the same ones as in the layer before."""
    for name, axis in (("time", time), ("batch", batch)):
        if len(axis) > 1 or any(factor.counts_channels for factor in axis):
            raise ModelError(mismatch(f"{node.where}: X", f"{name} apart", shown(x.axes)))
    if not time:
        raise ModelError(mismatch(f"{node.where}: X", "an axis of the input as time", shown(x.axes)))
    source = x.source
    if isinstance(source, Product):
        source = source.source
    if isinstance(source, Recurrent) and source.time != time:
        raise ModelError(mismatch(f"{node.where}: X", f"time {shown([source.time])} as before", shown([time])))


def _layer(node: Node, values: Values, direction: str, count: int, inputs: int) -> Layer:
    w, r = weights(node, "W", values[1], 3), weights(node, "R", values[2], 3)
    hidden = r.shape[2]
    if node.attributes.get("hidden_size", hidden) != hidden:
        raise ModelError(mismatch(f"{node.where}: hidden_size", f"{hidden} as R has", node.attributes["hidden_size"]))
    b = given(values, 3)
    biases = np.zeros((count, 6 * hidden), np.float32) if b is None else weights(node, "B", b, 2)
    for name, array, shape in (
        ("W", w, (count, 3 * hidden, inputs)),
        ("R", r, (count, 3 * hidden, hidden)),
        ("B", biases, (count, 6 * hidden)),
    ):
        if array.shape != shape:
            raise ModelError(mismatch(f"{node.where}: {name}", shape, array.shape))
    reset = "after" if node.attributes.get("linear_before_reset", 0) else "before"
    return Layer(direction, reset, tuple(onnx_cells(count, w, r, biases, None)))
