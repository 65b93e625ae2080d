"""An ONNX graph of GRU layers, between an embedding or features and an output layer.

The graph is followed node by node: each value is known to be a constant, a shape, ids, or numbers at every step whose
axes are known. What only moves axes must leave every axis what it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from vkcat.errors import ModelError, mismatch
from vkcat.importers.gru_model import GruModel, Imported, Linear
from vkcat.importers.onnx_gru import compute, rearrange
from vkcat.importers.onnx_gru.axes import CHANNEL, Factor, shown
from vkcat.importers.onnx_gru.file import GraphInput, Node, OnnxFile, read_file
from vkcat.importers.onnx_gru.folding import FOLDED, Folding
from vkcat.importers.onnx_gru.values import (
    Array,
    Constant,
    Embedded,
    Features,
    Ids,
    Product,
    Recurrent,
    Source,
    States,
    Stream,
    Value,
    kind_of,
)
from vkcat.importers.symbols import read_symbols

_ONE_OUTPUT: dict[str, Callable[[Node, rearrange.Values], Value]] = {
    "Gemm": compute.gemm,
    "MatMul": compute.matmul,
    "Add": compute.add,
    "Gather": compute.gather,
    "Concat": rearrange.concat,
    "Squeeze": rearrange.squeeze,
    "Unsqueeze": rearrange.unsqueeze,
    "Transpose": rearrange.transpose,
    "Reshape": rearrange.reshape,
    "Identity": rearrange.identity,
    "Cast": rearrange.cast,
    "Shape": rearrange.shape,
    "Slice": rearrange.slice_,
    "ConstantOfShape": rearrange.zeros,
    "Expand": rearrange.expand,
}
_SUPPORTED = ("GRU", *_ONE_OUTPUT, "Constant")


def read_onnx(path: Path, *, symbols: str | None = None) -> Imported:
    """The model in an ONNX file; `symbols` is as for `read_symbols`.

    Raises `ModelError` naming the node by its position from 0, what was expected and what came.
    """
    file = read_file(path)
    values = _values(file)
    found, notes = _output(file, values)
    model = _model(file, found)
    listed = None
    if symbols is not None:
        if model.table is None:
            raise ModelError(mismatch("--symbols", "a model with an embedding", "one without"))
        listed = read_symbols(symbols, len(model.table), f"{path}: the embedding")
    return Imported(model.stored(path.stem, str(path), listed), (*notes, *_conversions(file, values)))


def _values(file: OnnxFile) -> dict[str, Value]:
    values: dict[str, Value] = {name: Constant(array) for name, array in file.constants.items()}
    values |= {each.name: _given(each) for each in file.inputs}
    folding = Folding(file)
    for node in file.nodes:
        read = [values[name] if name else None for name in node.inputs]
        values |= dict(zip(node.outputs, _followed(folding, node, read), strict=False))
    return values


def _given(each: GraphInput) -> Value:
    """A graph's input: of integers, ids; of numbers, features with the channels last."""
    factors = [Factor(f"{each.name}[{at}]", size) for at, size in enumerate(each.sizes)]
    if each.integers:
        return Ids(tuple((factor,) for factor in factors), each.name)
    if factors:
        factors[-1] = Factor(CHANNEL, factors[-1].size)
    return Stream(tuple((factor,) for factor in factors), Features(each.name))


def _followed(folding: Folding, node: Node, values: rearrange.Values) -> tuple[Value, ...]:
    if node.op == "Constant":
        return (Constant(_constant(node)),)
    known = [value.array for value in values if isinstance(value, Constant)]
    if node.op in FOLDED and len(known) == len(values):
        return (Constant(folding.fold(node, known)),)
    if node.op == "GRU":
        return compute.gru(node, values)
    if node.op not in _ONE_OUTPUT:
        raise ModelError(mismatch(node.where, ", ".join(_SUPPORTED), node.op))
    return (_ONE_OUTPUT[node.op](node, values),)


def _constant(node: Node) -> Array:
    for name in ("value", "value_float", "value_floats", "value_int", "value_ints"):
        if name in node.attributes:
            dtype = np.float32 if "float" in name else np.int64
            value = node.attributes[name]
            return np.asarray(value) if name == "value" else np.asarray(value, dtype)
    raise ModelError(mismatch(node.where, "a constant of numbers", ", ".join(node.attributes)))


def _output(file: OnnxFile, values: dict[str, Value]) -> tuple[Stream, list[str]]:
    """What is given at every step; last states beside it are left out, and said."""
    notes = []
    streams: list[Stream] = []
    for name in file.outputs:
        value = values[name]
        if isinstance(value, Stream):
            streams.append(value)
            _check_output(f"{file.path}: output {name}", value)
        elif isinstance(value, States):
            notes.append(f"without its output {name}, the last states")
        else:
            raise ModelError(mismatch(f"{file.path}: output {name}", "what a GRU made at every step", kind_of(value)))
    if len(streams) != 1:
        names = ", ".join(file.outputs)
        raise ModelError(mismatch(f"{file.path}: outputs", "one of every step", f"{len(streams)} among {names}"))
    return streams[0], notes


def _check_output(where: str, stream: Stream) -> None:
    """Channels stand last, direction by direction; as a GRU node gives them, the direction may stand before."""
    labels = [factor.label for factor in compute.channels(stream)]
    last = [factor for axis in stream.axes for factor in axis][-1]
    if labels != sorted(labels) or not last.counts_channels:
        raise ModelError(mismatch(where, "channels last, direction by direction", shown(stream.axes)))


def _chain(source: Source) -> Iterator[Source]:
    """From the output to the input."""
    while True:
        yield source
        if not isinstance(source, Product | Recurrent):
            return
        source = source.source


def _model(file: OnnxFile, found: Stream) -> GruModel:
    """One linear layer at most before the first GRU and after the last, and none between."""
    chain = list(_chain(found.source))[::-1]
    start, *rest = chain
    assert isinstance(start, Features | Embedded)
    table = start.table if isinstance(start, Embedded) else None
    projection = output = None
    if rest and isinstance(rest[0], Product):
        projection = _linear(rest.pop(0))
    if rest and isinstance(rest[-1], Product):
        output = _linear(rest.pop())
    layers = [each.layer for each in rest if isinstance(each, Recurrent)]
    if not layers or len(layers) < len(rest) or (table is not None and projection is not None):
        names = {Features: "features", Embedded: "Gather", Product: "MatMul", Recurrent: "GRU"}
        expected = "Gather or features, GRU one after the other, and one MatMul or Gemm at most at an end"
        got = ", ".join(names[type(each)] for each in chain)
        raise ModelError(mismatch(str(file.path), expected, got))
    return GruModel(layers=tuple(layers), table=table, projection=projection, output=output)


def _linear(product: Source) -> Linear:
    assert isinstance(product, Product)
    bias = np.zeros(len(product.weight), np.float32) if product.bias is None else product.bias
    return Linear(product.weight, bias)


def _conversions(file: OnnxFile, values: dict[str, Value]) -> list[str]:
    """Weights that were of another dtype, by dtype."""
    names = [*file.constants, *(node.outputs[0] for node in file.nodes if node.op == "Constant")]
    dtypes = [value.array.dtype for name in names if isinstance(value := values[name], Constant)]
    others = [str(dtype) for dtype in dtypes if dtype.kind == "f" and dtype != np.float32]
    return [f"{others.count(dtype)} of {dtype} made float32" for dtype in dict.fromkeys(others)]
