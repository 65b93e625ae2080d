"""Run graphs in NumPy, each kernel by its reference, in float64."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.errors import DeviceError, InputError, mismatch
from vkcat.graph import Graph, Node, Role, Tensor
from vkcat.kernel import ROUNDED

Array = NDArray[Any]


def widened(values: Array) -> Array:
    """Numbers as float64; indices as they are."""
    return values.astype(np.float64) if values.dtype.kind == "f" else values


def node_inputs(node: Node, values: Mapping[Tensor, Array]) -> dict[str, Array]:
    """What a node's reference and error bound take: its inputs and its attributes, as float32 holds them, by name.

    `rounded` says of a node with matrices whether its sums are rounded to float16: the reference's are not, its bound
    allows for it.
    """
    inputs = {
        binding: widened(values[tensor])
        for binding, tensor in node.tensors.items()
        if binding not in node.kernel.outputs
    }
    numbers = {name: np.asarray(np.float32(number), np.float64) for name, number in node.attributes.items()}
    rounded = {"rounded": np.asarray(node.shader.endswith(ROUNDED))} if node.kernel.packed else {}
    return inputs | numbers | rounded


def run_node(node: Node, values: Mapping[Tensor, Array]) -> dict[Tensor, Array]:
    """Outputs of one node by its kernel's reference."""
    outputs = node.kernel.reference(node_inputs(node, values))
    return {node.tensors[binding]: array for binding, array in outputs.items()}


def _kept(graph: Graph) -> list[Tensor]:
    """What a graph keeps from step to step; it begins as zeros."""
    return [*graph.carries, *(tensor for tensor in graph.tensors() if tensor.role is Role.MEMORY)]


class ReferenceExecutor:
    """The surface of `Executor`, computed in float64 by the references."""

    def __init__(self, graphs: Sequence[Graph], values: Mapping[Tensor, Array] | None = None) -> None:
        self._graphs: dict[str, Graph] = {}
        self._closed = False
        self.values: dict[Tensor, Array] = {}
        self.add(graphs, values)

    def add(self, graphs: Sequence[Graph], values: Mapping[Tensor, Array] | None = None) -> None:
        """More graphs, which may share tensors with those there are, and what to write."""
        self.check_usable()
        self._graphs |= {graph.name: graph for graph in graphs}
        for graph in graphs:
            for state in _kept(graph):
                dtype = np.float64 if state.dtype == "float32" else np.uint32
                self.values.setdefault(state, np.zeros(state.shape, dtype))
        for tensor, array in (values or {}).items():
            self.write(tensor, array)

    def write(self, tensor: Tensor, values: Array) -> None:
        self.check_usable()
        # A state may come in float64, a matrix in another order of bytes: they are numbers all the same.
        if values.shape != tensor.shape or values.dtype.kind != np.dtype(tensor.dtype).kind:
            expected, got = f"{tensor.dtype} {tensor.shape}", f"{values.dtype} {values.shape}"
            raise InputError(mismatch(tensor.name, expected, got))
        self.values[tensor] = widened(values)

    def step(self, graph: str) -> None:
        """Run the graph's nodes in order, then carry its states."""
        self.check_usable()
        for node in self._graphs[graph].nodes:
            self.values.update(run_node(node, self.values))
        carries = self._graphs[graph].carries
        self.values.update({state: self.values[new] for state, new in carries.items()})

    def chunk(self, graph: str) -> int:
        del graph
        return 1

    def overlaps(self, graph: str) -> bool:
        del graph
        return False

    def launch(self, graph: str, count: int) -> None:
        for _ in range(count):
            self.step(graph)

    def finish(self) -> None:
        pass

    def read(self, tensor: Tensor) -> Array:
        self.check_usable()
        return self.values[tensor]

    def read_state(self, tensor: Tensor) -> Array:
        self.check_usable()
        return self.values[tensor]

    def close(self) -> None:
        self.values.clear()
        self._closed = True

    def check_usable(self) -> None:
        """Raises `DeviceError` when it was closed."""
        if self._closed:
            raise DeviceError(mismatch("executor", "one that is open", "one that has been closed"))
