"""An op's cases on a device: poisoned memory, guard words, and the reference."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from vkcat.device.interface import Device
from vkcat.executor import Executor, device_packing
from vkcat.graph import Graph, Node, Role, Tensor
from vkcat.kernel import PRECISIONS, Case, Kernel
from vkcat.parameters import shader_names
from vkcat.shader import Shader, load
from vkcat.tiling import Tiling
from vkcat.validate.expected import expectation
from vkcat.validate.result import Result, compare

Array = NDArray[Any]

POISON = 0x7FC0DEAD
"""A quiet NaN that no shader computes; as an index it is far outside every table."""

UNWRITTEN = 0x7FC0BEEF
"""Another NaN, for the outputs: poison copied from an input is then seen as a write."""

GUARD_BYTES = 256


def validate_op(
    device: Device,
    kernel: Kernel,
    shaders: Mapping[str, Shader] | None = None,
    schedule: str = "batched",
    tiling: Tiling | None = None,
) -> Iterator[Result]:
    """Run every case of `kernel` with each shader that the device has for it, tiled so or as by default.

    When shaders are given in place of ours, by name, only those are run.
    """
    for case in kernel.every_case:
        plain = case_shader(kernel, case)
        for name in shader_names(plain, device.info):
            if not shaders or name in shaders:
                given = shaders or {name: load(name)}
                way = name.removeprefix(plain).replace(".", "-")
                for result in validate_case(device, kernel, case, {name: given[name]}, schedule, tiling):
                    yield replace(result, case=f"{result.case}{way}")


def case_shader(kernel: Kernel, case: Case) -> str:
    """The name of the shader that a case runs, as a node's."""
    return kernel.name if case.precision == PRECISIONS[0] else f"{kernel.name}.{case.precision}"


def validate_case(
    device: Device,
    kernel: Kernel,
    case: Case,
    shaders: Mapping[str, Shader] | None = None,
    schedule: str = "batched",
    tiling: Tiling | None = None,
) -> list[Result]:
    """One case: every word of memory is NaN before it, and nothing but the outputs' elements may change.

    Products are shared out by `tiling`, or as they would be by default.
    """
    ran = run_case(device, kernel, case, case_inputs(kernel, case), shaders, schedule, tiling)
    expected = expectation(ran.node, ran.given, ran.got)
    results = []
    for name, got in ran.got.items():
        result = compare(kernel.name, case.name, name, got, expected.values[name], expected.bounds[name], kernel.why)
        if ran.unwritten.get(name):
            result = replace(
                result, problem=f"{ran.unwritten[name]} elements not written (or read from poisoned memory)"
            )
        elif ran.stray:
            result = replace(result, problem=f"{ran.stray} words written outside the outputs")
        results.append(result)
    return results


def case_inputs(kernel: Kernel, case: Case) -> dict[str, Array]:
    """The case's inputs, its matrices in its precision."""
    arrays = kernel.inputs(np.random.default_rng(case.seed), case)
    if case.precision != PRECISIONS[0]:
        arrays |= {name: arrays[name].astype(np.float16) for name in kernel.packed}
    return arrays


class Ran(Struct, frozen=True):
    """What a case gave by binding, how many elements of each output were not written, and words written elsewhere."""

    node: Node
    given: Mapping[Tensor, Array]
    got: dict[str, Array]
    unwritten: dict[str, int]
    stray: int


def run_case(
    device: Device,
    kernel: Kernel,
    case: Case,
    arrays: Mapping[str, Array],
    shaders: Mapping[str, Shader] | None = None,
    schedule: str = "batched",
    tiling: Tiling | None = None,
) -> Ran:
    """Run the case on inputs such as `case_inputs`."""
    graph = Graph("case", case.precision)
    roles = dict.fromkeys(kernel.updates, Role.MEMORY) | dict.fromkeys(kernel.packed, Role.WEIGHT)
    tensors = {
        name: Tensor(name, array.shape, str(array.dtype), roles.get(name, Role.INPUT)) for name, array in arrays.items()
    }
    numbers = dict(case.attributes) | {name: case.sizes[name] for name in kernel.free_sizes}
    made = graph.add(kernel.name, kernel.name, numbers, **tensors)
    outputs = dict(zip(kernel.outputs, made, strict=True))
    for tensor in outputs.values():
        graph.output(tensor)
    written = outputs | {name: tensors[name] for name in kernel.updates}
    packing = replace(device_packing(device), reuse=False, guard=GUARD_BYTES)
    chosen = None if tiling is None else lambda node: tiling
    executor = Executor(device, [graph], schedule, packing=packing, shaders=shaders, tiling=chosen)
    try:
        executor.fill(POISON)
        for tensor in outputs.values():
            executor.fill_tensor(tensor, UNWRITTEN)
        for name, tensor in tensors.items():
            executor.write(tensor, arrays[name])
        executor.settle_inputs()
        before = executor.words()
        executor.step("case")
        after = executor.words()
        got = {name: executor.read(tensor) for name, tensor in written.items()}
        unwritten = {
            name: int(np.isin(executor.element_words(tensor, after), (POISON, UNWRITTEN)).sum())
            for name, tensor in outputs.items()
        }
        for tensor in written.values():
            executor.element_words(tensor, after)[...] = executor.element_words(tensor, before)
        stray = sum(int((old != new).sum()) for old, new in zip(before, after, strict=True))
    finally:
        executor.close()
    given = {tensors[name]: array for name, array in arrays.items()}
    return Ran(graph.nodes[0], given, got, unwritten, stray)
