"""An ONNX file as nodes and arrays. Nothing else here knows the package onnx, which is optional."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vkcat.errors import ModelError, mismatch
from vkcat.files import contents
from vkcat.importers.onnx_gru.external import load_external
from vkcat.importers.onnx_gru.messages import check_texts

MOST_BYTES = (1 << 31) - 1
"""Protobuf's own limit of a message."""

Array = NDArray[Any]


class Node(Struct, frozen=True):
    """`where` begins errors about it; an input that is left out is "". Attributes that are tensors are arrays."""

    op: str
    where: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    proto: Any

    @property
    def arrays(self) -> list[Array]:
        """Attributes that are tensors."""
        return [value for value in self.attributes.values() if isinstance(value, np.ndarray)]


class GraphInput(Struct, frozen=True):
    """`sizes` are None where they are not known."""

    name: str
    integers: bool
    sizes: tuple[int | None, ...]


class OnnxFile(Struct, frozen=True):
    """`constants` are the initializers; `inputs` are without them."""

    path: Path
    nodes: tuple[Node, ...]
    inputs: tuple[GraphInput, ...]
    outputs: tuple[str, ...]
    constants: Mapping[str, Array]
    opsets: Sequence[Any]


def read_file(path: Path) -> OnnxFile:
    """Read and check a file; weights beside it are read too, from its own folder alone. Raises `ModelError`."""
    onnx = package()
    try:
        model = onnx.load_model_from_string(contents(path, MOST_BYTES))
        check_texts(path, model)
        load_external(path, model, onnx.TensorProto.EXTERNAL)
        onnx.checker.check_model(model)
    except ModelError:
        raise
    # What protobuf raises has no base class but Exception.
    except Exception as error:
        detail = error.strerror if isinstance(error, OSError) and error.strerror else str(error).split("\n")[0]
        raise ModelError(mismatch(str(path), "an ONNX file", detail[:300] or type(error).__name__)) from error
    graph = model.graph
    constants = {tensor.name: _array(f"{path}: {tensor.name}", tensor) for tensor in graph.initializer}
    sparse = [tensor.values.name for tensor in graph.sparse_initializer]
    if sparse:
        raise ModelError(mismatch(f"{path}: {sparse[0]}", "a dense initializer", "a sparse one"))
    return OnnxFile(
        path=path,
        nodes=tuple(_node(path, at, proto) for at, proto in enumerate(graph.node)),
        inputs=tuple(_input(path, value) for value in graph.input if value.name not in constants),
        outputs=tuple(value.name for value in graph.output),
        constants=constants,
        opsets=list(model.opset_import),
    )


def package() -> Any:
    try:
        import onnx
        import onnx.checker
        import onnx.numpy_helper
    except ImportError as error:
        raise ModelError("import onnx: expected the package onnx, got none; pip install 'vkcat[onnx]'") from error
    return onnx


def _array(where: str, tensor: Any) -> Array:
    try:
        array: Array = package().numpy_helper.to_array(tensor)
    except (KeyError, TypeError, ValueError) as error:
        raise ModelError(mismatch(where, "a whole tensor", f"{type(error).__name__}: {error}")) from error
    return array


def _node(path: Path, at: int, proto: Any) -> Node:
    # A name may be any text; an error is one line.
    name = f" {json.dumps(proto.name, ensure_ascii=False)}" if proto.name else ""
    where = f"{path}: node {at} ({proto.op_type}{name})"
    return Node(
        op=proto.op_type if proto.domain in ("", "ai.onnx") else f"{proto.domain}.{proto.op_type}",
        where=where,
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        attributes={attribute.name: _attribute(where, attribute) for attribute in proto.attribute},
        proto=proto,
    )


def _attribute(where: str, attribute: Any) -> Any:
    if attribute.HasField("t"):
        return _array(f"{where}: {attribute.name}", attribute.t)
    if attribute.ref_attr_name:
        raise ModelError(mismatch(f"{where}: {attribute.name}", "a value", f"a reference to {attribute.ref_attr_name}"))
    try:
        value = package().helper.get_attribute_value(attribute)
    except ValueError as error:
        raise ModelError(mismatch(f"{where}: {attribute.name}", "a value", str(error)[:300])) from error
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return [item.decode("utf-8", "replace") for item in value]
    return value


def _input(path: Path, value: Any) -> GraphInput:
    where = f"{path}: input {value.name}"
    if not value.type.HasField("tensor_type") or not value.type.tensor_type.HasField("shape"):
        raise ModelError(mismatch(where, "a tensor with a known number of dimensions", "another type"))
    tensor = value.type.tensor_type
    helper = package().helper
    if tensor.elem_type not in helper.get_all_tensor_dtypes():
        raise ModelError(mismatch(where, "a data type of ONNX", tensor.elem_type))
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    sizes = tuple(
        dimension.dim_value if dimension.HasField("dim_value") and dimension.dim_value > 0 else None
        for dimension in tensor.shape.dim
    )
    return GraphInput(value.name, dtype.kind in "iu", sizes)
