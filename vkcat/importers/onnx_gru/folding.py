"""Nodes of constants alone, computed: they move and join weights, and may make no more of them than a model needs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vkcat.errors import ModelError, mismatch
from vkcat.importers.onnx_gru.file import Array, Node, OnnxFile, package

FOLDED = ("Squeeze", "Unsqueeze", "Transpose", "Reshape", "Identity", "Cast", "Concat", "Slice")

MOST_TIMES, MOST_BYTES = 16, 1 << 20
"""All that is computed together, as a multiple of the file's weights and beside them: a node of some bytes may double
what the one before it made."""


class Folding:
    """Computes by the package's own reference."""

    def __init__(self, file: OnnxFile) -> None:
        self._opsets = file.opsets
        stored = [*file.constants.values(), *(array for node in file.nodes for array in node.arrays)]
        self._most = self._left = MOST_BYTES + MOST_TIMES * sum(array.nbytes for array in stored)

    def fold(self, node: Node, values: Sequence[Array]) -> Array:
        """The only output of a node whose inputs are all known. Raises `ModelError`."""
        onnx = package()
        from onnx.reference import ReferenceEvaluator

        # A number of another kind has 8 bytes at most.
        self._left -= sum(max(array.nbytes, 8 * array.size) if node.op == "Cast" else array.nbytes for array in values)
        if self._left < 0:
            expected = f"at most {self._most} bytes of constants, computed from those in the file"
            raise ModelError(mismatch(node.where, expected, "more"))
        if node.op == "Cast" and node.attributes.get("to") not in _NUMBERS:
            raise ModelError(mismatch(f"{node.where}: to", "a data type of numbers", node.attributes.get("to")))
        helper = onnx.helper
        given = dict(zip(node.inputs, values, strict=True))
        dtypes = {name: int(helper.np_dtype_to_tensor_dtype(array.dtype)) for name, array in given.items()}
        inputs = [helper.make_tensor_value_info(name, dtypes[name], array.shape) for name, array in given.items()]
        outputs = [onnx.ValueInfoProto(name=node.outputs[0])]
        graph = helper.make_graph([node.proto], "fold", inputs, outputs)
        try:
            with np.errstate(all="ignore"):
                (array,) = ReferenceEvaluator(helper.make_model(graph, opset_imports=self._opsets)).run(None, given)
        # The package's reference raises whatever its Python meets.
        except Exception as error:
            got = str(error).split("\n")[0] or type(error).__name__
            raise ModelError(mismatch(node.where, "inputs that fit together", got)) from error
        return np.asarray(array)


_NUMBERS = (1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12, 13)
"""TensorProto's FLOAT, the integers, BOOL, FLOAT16, DOUBLE, UINT32 and UINT64."""
