"""A model's steps on a device, each intermediate against the reference of its kernel, and the run as a whole."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.device.interface import Device
from vkcat.executor import Executor, device_packing
from vkcat.graph import Graph, Tensor
from vkcat.kernel import UNIT_ROUNDOFF
from vkcat.model import Model
from vkcat.ops.gates import HOLD, RESTART, STEP
from vkcat.reference import ReferenceExecutor, node_inputs, run_node
from vkcat.shader import Shader
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
    """A few encoding and decoding steps on random ids. Every stream holds, steps and restarts at some time.

    Each node is given the device's own inputs, so an error shows where it is made; a last row an output compares the
    whole run with the reference's.
    """
    packing = replace(device_packing(device), reuse=False, guard=GUARD_BYTES)
    executor = Executor(device, model.graphs, schedule, packing=packing, shaders=shaders)
    reference = ReferenceExecutor(model.graphs)
    try:
        executor.fill(POISON)
        for name, tensor in model.weights.items():
            executor.write(tensor, weights[name])
            reference.write(tensor, weights[name])
        rng = np.random.default_rng(seed)
        for t in range(STEPS):
            yield from _step(executor, reference, model.encode, t, _encode_inputs(model, rng, t))
        start = np.full(model.batch, model.config.decoder.input.symbols.index(model.config.output.start), np.uint32)
        executor.write(model.token, start)
        reference.write(model.token, start)
        for t in range(STEPS):
            yield from _step(executor, reference, model.decode, t, {model.decode_mode: _modes(model, rng)})
            # From here on both must read the same token, or the comparison is of two different sentences.
            reference.write(model.token, executor.read(model.chosen))
        yield from _whole(executor, reference, model)
    finally:
        executor.close()


def _modes(model: Model, rng: np.random.Generator) -> Array:
    return rng.choice(np.array([HOLD, STEP, STEP, STEP], np.uint32), model.batch)


def _encode_inputs(model: Model, rng: np.random.Generator, t: int) -> dict[Tensor, Array]:
    symbols = len(model.config.encoder.input.symbols)
    mode = np.full(model.batch, RESTART, np.uint32) if t == 0 else _modes(model, rng)
    return {model.ids: rng.integers(0, symbols, model.batch, dtype=np.uint32), model.encode_mode: mode}


def _step(
    executor: Executor, reference: ReferenceExecutor, graph: Graph, t: int, inputs: Mapping[Tensor, Array]
) -> Iterator[Result]:
    for tensor, array in inputs.items():
        executor.write(tensor, array)
        reference.write(tensor, array)
    # What a node updates in place is gone after the step.
    before = {
        node.tensors[name]: executor.read(node.tensors[name]) for node in graph.nodes for name in node.kernel.updates
    }
    executor.step(graph.name)
    reference.step(graph.name)
    for node in graph.nodes:
        values = {t: before[t] if t in node.writes else executor.read(t) for t in node.reads}
        expected = run_node(node, values)
        bounds = node.kernel.bound(node_inputs(node, values))
        for binding in node.kernel.written:
            tensor = node.tensors[binding]
            case = f"{graph.name} step {t}: {tensor.name}"
            yield compare(
                node.kernel.name,
                case,
                binding,
                executor.read(tensor),
                expected[tensor],
                bounds[binding],
                node.kernel.why,
            )


def _whole(executor: Executor, reference: ReferenceExecutor, model: Model) -> Iterator[Result]:
    """States after all steps, with the rounding of every step allowed for."""
    steps = 2 * STEPS
    for state, successor in model.decode.carries.items():
        if state.dtype != "float32":
            continue
        terms = sum(state.shape[-1:]) + model.config.encoder.width
        relative = steps * 8 * math.sqrt(terms) * UNIT_ROUNDOFF
        expected = reference.read(successor)
        # A state is within -1 and 1, so a relative error of its inputs is an absolute one of it.
        bound = np.full(expected.shape, relative * max(1.0, float(np.abs(expected).max())))
        why = f"{steps} steps of 8 sqrt(n) u, n = {terms}"
        yield compare(
            "model", f"after {steps} steps: {state.name}", "state", executor.read(successor), expected, bound, why
        )
