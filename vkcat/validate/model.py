"""A model's steps on a device, each intermediate against the reference of its kernel, and the run as a whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from vkcat.device.interface import Device
from vkcat.executor import Executor, device_packing
from vkcat.graph import Graph, Role, Tensor
from vkcat.kernel import UNIT_ROUNDOFF
from vkcat.model import Model
from vkcat.ops.gates import HOLD, RESTART, STEP
from vkcat.reference import ReferenceExecutor
from vkcat.shader import Shader
from vkcat.validate.expected import expectation
from vkcat.validate.ops import GUARD_BYTES, POISON
from vkcat.validate.result import Result, compare

Array = NDArray[Any]

STEPS = 4


def validate_model(
    device: Device,
    model: Model,
    weights: Mapping[str, Array],
    schedule: str,
    shaders: Mapping[str, Shader] | None = None,
    seed: int = 0,
) -> Iterator[Result]:
    """A few steps of each of the model's graphs in turn, on random inputs; streams hold, step and restart.

    Each node is given the device's own inputs, so an error shows where it is made; last rows compare the states of the
    whole run with the reference's.
    """
    graphs = tuple(model.graphs.values())
    packing = replace(device_packing(device), reuse=False, guard=GUARD_BYTES)
    executor = Executor(device, graphs, schedule, packing=packing, shaders=shaders)
    reference = ReferenceExecutor(graphs)
    rng = np.random.default_rng(seed)
    try:
        executor.fill(POISON)
        given = model.values(weights) | {tensor: _drawn(model, tensor, rng) for tensor in _counted(model)}
        for tensor, values in given.items():
            _write(executor, reference, tensor, values)
        for tensor in model.shared.kept.values():
            if tensor.dtype == "float32":
                reference.write(tensor, np.full(tensor.shape, np.nan))
        steps = 0
        begun: set[Tensor] = set()
        for graph in graphs:
            kept = set(model.shared.kept.values()) & set(graph.tensors())
            for tensor in model.starts:
                _write(executor, reference, tensor, _drawn(model, tensor, rng))
            for _ in range(STEPS):
                inputs = {tensor: _drawn(model, tensor, rng) for tensor in _inputs(graph)}
                if kept - begun:
                    inputs[model.mode] = np.full(model.batch, RESTART, np.uint32)
                begun |= kept
                yield from _step(executor, reference, graph, steps, inputs)
                _agree(executor, reference, model)
                steps += 1
        yield from _whole(executor, reference, model, steps)
    finally:
        executor.close()


def _write(executor: Executor, reference: ReferenceExecutor, tensor: Tensor, values: Array) -> None:
    executor.write(tensor, values)
    reference.write(tensor, values)


def _inputs(graph: Graph) -> list[Tensor]:
    return [tensor for tensor in graph.tensors() if tensor.role is Role.INPUT]


def _counted(model: Model) -> list[Tensor]:
    """Kept integers: where a step's mode alone does not begin them, a session sets them."""
    return [tensor for tensor in model.shared.kept.values() if tensor.dtype == "uint32"]


def _drawn(model: Model, tensor: Tensor, rng: np.random.Generator) -> Array:
    if tensor is model.mode:
        return rng.choice(np.array([HOLD, STEP, STEP, STEP], np.uint32), model.batch)
    if tensor.dtype == "uint32":
        return rng.integers(0, model.limits.get(tensor, 16), tensor.shape, dtype=np.uint32)
    return rng.standard_normal(tensor.shape).astype(np.float32)


def _agree(executor: Executor, reference: ReferenceExecutor, model: Model) -> None:
    """Give both the same integers, or one token chosen otherwise makes the rest a comparison of two sentences."""
    for tensor in (*model.limits, *_counted(model)):
        if tensor.role is not Role.INPUT:
            reference.write(tensor, executor.read_state(tensor))


def _step(
    executor: Executor, reference: ReferenceExecutor, graph: Graph, t: int, inputs: Mapping[Tensor, Array]
) -> Iterator[Result]:
    for tensor, array in inputs.items():
        _write(executor, reference, tensor, array)
    memories = _Memories(executor, graph)
    executor.step(graph.name)
    reference.step(graph.name)
    for node in graph.nodes:
        values = {t: memories.value(t) if t in memories else executor.read(t) for t in node.reads}
        read = {binding: executor.read(node.tensors[binding]) for binding in node.kernel.written}
        expected = expectation(node, values, read)
        for binding, got in read.items():
            tensor, wanted, bound = node.tensors[binding], expected.values[binding], expected.bounds[binding]
            if tensor in memories:
                bound = memories.update(tensor, wanted, bound)
                if memories.last_writer[tensor] is not node:
                    continue
            case = f"{graph.name} step {t}: {tensor.name}"
            yield compare(node.kernel.name, case, binding, got, wanted, bound, node.kernel.why)


class _Memories:
    """What nodes update in place, as each node finds it: of the device only the end of the step can be seen."""

    def __init__(self, executor: Executor, graph: Graph) -> None:
        self._executor = executor
        self.last_writer = {node.tensors[name]: node for node in graph.nodes for name in node.kernel.updates}
        self._values = {tensor: executor.read_state(tensor) for tensor in self.last_writer}
        self._bounds: dict[Tensor, Array] = {}

    def __contains__(self, tensor: Tensor) -> bool:
        return tensor in self.last_writer

    def value(self, tensor: Tensor) -> Array:
        """The device's own elements where they are final, the reference's where a later node changes them."""
        if tensor not in self._bounds:
            return self._values[tensor]
        final, expected = self._executor.read(tensor), self._values[tensor]
        with np.errstate(invalid="ignore"):
            same = np.abs(final.astype(np.float64) - expected) <= self._bounds[tensor]
        return np.asarray(np.where(same, final, expected).astype(tensor.dtype))

    def update(self, tensor: Tensor, expected: Array, bound: Array) -> Array:
        """A node has been here. Returns the bound with those of the nodes before it."""
        self._values[tensor] = expected
        self._bounds[tensor] = self._bounds.get(tensor, np.zeros(bound.shape)) + bound
        return self._bounds[tensor]


def _whole(executor: Executor, reference: ReferenceExecutor, model: Model, steps: int) -> Iterator[Result]:
    """States after all steps, with the rounding of every node of every step allowed for."""
    terms = max(tensor.shape[-1] for tensor in model.weights.values())
    depth = max(len(graph.nodes) for graph in model.graphs.values())
    relative = steps * depth * 8 * math.sqrt(terms) * UNIT_ROUNDOFF
    why = f"{steps} steps of {depth} nodes of 8 sqrt(n) u, n = {terms}"
    for state in model.shared.kept.values():
        expected = reference.read_state(state)
        exact = state.dtype == "uint32"
        # An error of one element may come from any other's: it is measured by the greatest.
        size = 0.0 if exact else relative * max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0)))
        # A ring's slots that no step has reached are NaN, as they were.
        got, bound = executor.read_state(state), np.full(expected.shape, size)
        yield compare("model", f"after {steps} steps: {state.name}", "state", got, expected, bound, why)
