"""Whether a device does what vkcat needs of it: memory, timestamps, and each op at its first sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter_ns

import numpy as np
from msgspec import Struct

from vkcat.device.interface import Device, Memory
from vkcat.errors import VkcatError
from vkcat.executor import Executor
from vkcat.graph import Graph, Role, Tensor
from vkcat.ops import OPS
from vkcat.validate.ops import validate_case

CASES = 3
"""Of each op: one of a single number, and the first awkward ones."""

ROUND_TRIP_WORDS = 1 << 18
TIMED_STEPS = 20


class Check(Struct, frozen=True):
    """`problem` is empty where all is well; `found` says what was seen."""

    name: str
    found: str
    problem: str = ""


def checks_of(device: Device) -> dict[str, Callable[[], Check]]:
    """Every check, by its name."""
    return {
        **{f"round trip, {memory.value}": partial(_round_trip, device, memory) for memory in Memory},
        "timestamps": partial(_timestamps, device),
        **{f"op {name}": partial(_op, device, name) for name in OPS},
    }


def check_device(device: Device) -> Iterator[Check]:
    """All of them, one after the other. What one of them raises is its problem, and the others go on."""
    for name, check in checks_of(device).items():
        try:
            yield check()
        except VkcatError as error:
            yield Check(name, "", str(error))


def _round_trip(device: Device, memory: Memory) -> Check:
    sent = np.random.default_rng(0).integers(0, 1 << 32, ROUND_TRIP_WORDS, dtype=np.uint32)
    buffer = device.buffer(sent.nbytes, memory)
    try:
        buffer.write(sent)
        got = buffer.read(sent.nbytes)
    finally:
        buffer.close()
    wrong = int((got != sent).sum())
    name = f"round trip, {memory.value}"
    return Check(name, f"{sent.nbytes >> 20} MiB", f"{wrong} of {sent.size} words came back otherwise" if wrong else "")


def _timestamps(device: Device) -> Check:
    """Of a product that is no trifle: each time must be above zero and within what the host saw."""
    if not device.timestamps:
        return Check("timestamps", "none from this backend")
    if not device.info.timestamp_bits:
        return Check("timestamps", "none on this device")
    graph, values = _product()
    executor = Executor(device, [graph], timestamps=True)
    try:
        for tensor, array in values.items():
            executor.write(tensor, array)
        times = []
        for _ in range(TIMED_STEPS):
            begin = perf_counter_ns()
            (kernel,) = executor.timed_step(graph.name)
            times.append((kernel, float(perf_counter_ns() - begin)))
    finally:
        executor.close()
    median = float(np.median([kernel for kernel, _ in times]))
    found = f"{median / 1e3:.1f} us of a product, {device.info.timestamp_bits} bits"
    problem = ""
    if min(kernel for kernel, _ in times) <= 0:
        problem = "a dispatch took no time, or less"
    elif any(kernel > host for kernel, host in times):
        problem = "a dispatch took longer than the host waited for it"
    return Check("timestamps", found, problem)


def _product() -> tuple[Graph, dict[Tensor, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]]:
    graph = Graph("product")
    x = Tensor("x", (1, 512), "float32", Role.INPUT)
    w = Tensor("w", (512, 512), "float32", Role.WEIGHT)
    bias = Tensor("bias", (512,), "float32", Role.WEIGHT)
    (y,) = graph.add("linear", "product", x=x, w=w, bias=bias)
    graph.output(y)
    return graph, {tensor: np.ones(tensor.shape, np.float32) for tensor in (x, w, bias)}


def _op(device: Device, name: str) -> Check:
    kernel = OPS[name]
    results = [result for case in kernel.cases[:CASES] for result in validate_case(device, kernel, case)]
    problems = [f"{result.case} {result.tensor}: {result.problem}" for result in results if not result.passed]
    return Check(f"op {name}", f"{len(results)} checked", "; ".join(problems))
