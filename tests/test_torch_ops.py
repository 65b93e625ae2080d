"""Ops against torch and transformers, stepped through a sequence and compared with the oracle's way over the whole.

RMSNorm; patches with a convolution; a gated MLP; a ring with band-masked attention; the delta memory with transformers'
chunked Kimi delta attention; routed experts with its Mixtral (softmax) and Kimi Linear (biased sigmoid) blocks.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from torch_cases import (
    DELTA_CASES,
    MLP_SHAPES,
    MOE_CASES,
    NORM_SHAPES,
    PATCH_CASES,
    RING_CASES,
    DeltaCase,
    MoeCase,
    PatchCase,
    RingCase,
    delta_arrays,
    mlp_arrays,
    moe_arrays,
    norm_arrays,
    patch_arrays,
    ring_arrays,
)

from vkcat.config import PatchesInput
from vkcat.device.interface import Device
from vkcat.executor import Executor, Steps
from vkcat.graph import Graph, Role, Tensor
from vkcat.images import cut
from vkcat.ops.gates import HOLD, RESTART, STEP
from vkcat.reference import ReferenceExecutor


@lru_cache(maxsize=None)
def _golden(name: str = "torch_ops") -> dict[str, np.ndarray[Any, Any]]:
    with np.load(ROOT / "tests" / "golden" / f"{name}.npz") as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("shape", NORM_SHAPES, ids=str)
def test_rms_norm(device: Device, shape: tuple[int, int]) -> None:
    x, gain = norm_arrays(shape)
    graph = Graph("norm")
    inputs = {
        "x": Tensor("x", x.shape, "float32", Role.INPUT),
        "gain": Tensor("gain", gain.shape, "float32", Role.WEIGHT),
    }
    (y,) = graph.add("rms_norm", "norm", {"eps": 1e-6}, **inputs)
    graph.output(y)
    executor = Executor(device, [graph])
    executor.write(inputs["x"], x)
    executor.write(inputs["gain"], gain)
    executor.step("norm")
    assert np.abs(executor.read(y) - _golden()[f"norm-{shape[0]}-{shape[1]}"]).max() < 1e-5
    executor.close()


class _Ring:
    """A graph that writes a step's key and value and attends."""

    def __init__(self, case: RingCase) -> None:
        B, C, Q = case.batch, case.groups * case.width, case.heads * case.width
        self.graph = graph = Graph("ring")
        self.q, self.k, self.v = (Tensor(n, (B, w), "float32", Role.INPUT) for n, w in (("q", Q), ("k", C), ("v", C)))
        self.mode = Tensor("mode", (B,), "uint32", Role.INPUT)
        self.slopes = Tensor("slopes", (case.heads,), "float32", Role.WEIGHT)
        rings = {n: Tensor(n, (B, case.window, C), "float32", Role.MEMORY) for n in ("k_ring", "v_ring")}
        t = Tensor("t", (B,), "uint32", Role.STATE)
        (count,) = graph.add("ring_write", "write", k=self.k, v=self.v, t=t, mode=self.mode, **rings)
        graph.carry(t, count)
        (self.o,) = graph.add("ring_attention", "attention", q=self.q, t=count, slopes=self.slopes, **rings)
        graph.output(self.o)

    def run(self, steps: Steps, case: RingCase) -> np.ndarray[Any, Any]:
        given = ring_arrays(case)
        steps.write(self.slopes, given["slopes"])
        outs = []
        for t in range(case.steps):
            for tensor, name in ((self.q, "q"), (self.k, "k"), (self.v, "v")):
                steps.write(tensor, given[name][t])
            steps.write(self.mode, np.full(case.batch, STEP if t else RESTART, np.uint32))
            steps.step("ring")
            outs.append(steps.read(self.o))
        return np.stack(outs)


@pytest.mark.parametrize("case", RING_CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("schedule", ["eager", "replay"])
def test_ring_attention(device: Device, case: RingCase, schedule: str) -> None:
    ring = _Ring(case)
    executor = Executor(device, [ring.graph], schedule)
    assert np.abs(ring.run(executor, case) - _golden()[case.name]).max() < 1e-5
    # A second sequence restarts: nothing of the first is seen.
    assert np.abs(ring.run(executor, case) - _golden()[case.name]).max() < 1e-5
    executor.close()


@pytest.mark.parametrize("case", RING_CASES, ids=lambda case: case.name)
def test_ring_attention_in_the_reference(case: RingCase) -> None:
    ring = _Ring(case)
    assert np.abs(ring.run(ReferenceExecutor([ring.graph]), case) - _golden()[case.name]).max() < 1e-6


def test_a_held_stream_keeps_its_ring(vulkan_device: Device) -> None:
    case = RING_CASES[1]
    ring, given = _Ring(case), ring_arrays(case)
    executor = Executor(vulkan_device, [ring.graph])
    executor.write(ring.slopes, given["slopes"])
    modes = [[RESTART, RESTART], [STEP, STEP], [HOLD, STEP], [STEP, STEP]]
    outs = []
    # Stream 0 is held in the third step and goes on with what it would have got there.
    feed = [(0, 0), (1, 1), (5, 2), (2, 3)]
    for mode, (first, second) in zip(modes, feed, strict=True):
        for tensor, name in ((ring.q, "q"), (ring.k, "k"), (ring.v, "v")):
            executor.write(tensor, np.stack([given[name][first, 0], given[name][second, 1]]))
        executor.write(ring.mode, np.array(mode, np.uint32))
        executor.step("ring")
        outs.append(executor.read(ring.o))
    golden = _golden()[case.name]
    assert np.abs(outs[3][0] - golden[2, 0]).max() < 1e-5
    assert np.abs(outs[3][1] - golden[3, 1]).max() < 1e-5
    executor.close()


class _Delta:
    """Short convolutions of q, k and v, the memory, and the gated norm."""

    def __init__(self, case: DeltaCase) -> None:
        B, N, R, P = case.batch, case.heads, case.heads * case.key, case.heads * case.value
        self.graph = graph = Graph("delta")
        widths = {"q": R, "k": R, "z": R, "v": P, "gate": P, "beta": N}
        self.inputs = {name: Tensor(name, (B, width), "float32", Role.INPUT) for name, width in widths.items()}
        shapes = {"a": (N,), "gain": (case.value,), "w_q": (R, 4), "w_k": (R, 4), "w_v": (P, 4)}
        self.weights = {name: Tensor(name, shape, "float32", Role.WEIGHT) for name, shape in shapes.items()}
        self.mode = Tensor("mode", (B,), "uint32", Role.INPUT)
        mixed = {name: self._convolved(name, widths[name], B) for name in "qkv"}
        self.memory = Tensor("memory", (B, R, case.value), "float32", Role.MEMORY)
        (o,) = graph.add(
            "delta_memory",
            "memory",
            {"bounded": 0.0},
            **mixed,
            beta=self.inputs["beta"],
            z=self.inputs["z"],
            a=self.weights["a"],
            mode=self.mode,
            memory=self.memory,
        )
        (self.o,) = graph.add(
            "gated_norm", "norm", {"eps": 1e-6}, x=o, gate=self.inputs["gate"], gain=self.weights["gain"]
        )
        graph.output(self.o)

    def _convolved(self, name: str, width: int, batch: int) -> Tensor:
        history = Tensor(f"{name}.history", (batch, 3, width), "float32", Role.STATE)
        y, after = self.graph.add(
            "short_conv",
            f"conv.{name}",
            x=self.inputs[name],
            w=self.weights[f"w_{name}"],
            history=history,
            mode=self.mode,
        )
        self.graph.carry(history, after)
        return y

    def run(self, steps: Steps, case: DeltaCase) -> np.ndarray[Any, Any]:
        given = delta_arrays(case)
        for name, tensor in self.weights.items():
            steps.write(tensor, given[name])
        outs = []
        for t in range(case.steps):
            for name, tensor in self.inputs.items():
                steps.write(tensor, given[name][t])
            steps.write(self.mode, np.full(case.batch, STEP if t else RESTART, np.uint32))
            steps.step("delta")
            outs.append(steps.read(self.o))
        return np.stack(outs)


@pytest.mark.parametrize("case", DELTA_CASES, ids=lambda case: case.name)
def test_delta_memory(device: Device, case: DeltaCase) -> None:
    delta = _Delta(case)
    executor = Executor(device, [delta.graph])
    for _ in range(2):
        assert np.abs(delta.run(executor, case) - _golden()[case.name]).max() < 1e-5
    executor.close()


@pytest.mark.parametrize("case", DELTA_CASES, ids=lambda case: case.name)
def test_delta_memory_in_the_reference(case: DeltaCase) -> None:
    delta = _Delta(case)
    assert np.abs(delta.run(ReferenceExecutor([delta.graph]), case) - _golden()[case.name]).max() < 1e-5


def _moe(steps_of: Any, case: MoeCase) -> np.ndarray[Any, Any]:
    """Router, route, experts, combine, run once by what `steps_of` makes of the graph."""
    given = moe_arrays(case)
    graph = Graph("moe")
    x = Tensor("x", given["x"].shape, "float32", Role.INPUT)
    zeros = Tensor("zeros", (case.experts,), "float32", Role.WEIGHT)
    weights = {n: Tensor(n, given[n].shape, "float32", Role.WEIGHT) for n in ("router", "bias", "w_in", "w_out")}
    (logits,) = graph.add("linear", "router", x=x, w=weights["router"], bias=zeros)
    numbers = {"softmax": float(case.softmax), "S": case.chosen}
    index, weight = graph.add("moe_route", "route", numbers, logits=logits, bias=weights["bias"])
    w = {name: weights[name] for name in ("w_in", "w_out")}
    (y,) = graph.add("moe_expert", "experts", {"situ": 0.0}, x=x, index=index, **w)
    (combined,) = graph.add("moe_combine", "combine", y=y, weight=weight)
    graph.output(combined)
    steps: Steps = steps_of(graph)
    steps.write(x, given["x"])
    steps.write(zeros, np.zeros(case.experts, np.float32))
    for name, tensor in weights.items():
        steps.write(tensor, given[name])
    steps.step("moe")
    out = steps.read(combined)
    steps.close()
    return out


@pytest.mark.parametrize("case", MOE_CASES, ids=lambda case: case.name)
def test_routed_experts(device: Device, case: MoeCase) -> None:
    assert np.abs(_moe(lambda graph: Executor(device, [graph]), case) - _golden()[case.name]).max() < 1e-5


@pytest.mark.parametrize("case", MOE_CASES, ids=lambda case: case.name)
def test_routed_experts_in_the_reference(case: MoeCase) -> None:
    assert np.abs(_moe(lambda graph: ReferenceExecutor([graph]), case) - _golden()[case.name]).max() < 1e-5


@pytest.mark.parametrize("case", PATCH_CASES, ids=lambda case: case.name)
def test_patches(device: Device, case: PatchCase) -> None:
    """Through `cut` as a session does it, every patch in its turn."""
    given, count = patch_arrays(case), case.rows * case.columns
    read = PatchesInput(rows=case.rows, columns=case.columns, side=case.side, channels=case.channels)
    arrays = {
        "patches": cut(given["image"], read, 1),
        "position": np.zeros(1, np.uint32),
        "w": given["w"].reshape(case.width, -1),
        "bias": given["bias"],
        "places": given["places"],
    }
    graph = Graph("patches")
    tensors = {name: Tensor(name, array.shape, array.dtype.name, Role.INPUT) for name, array in arrays.items()}
    (y,) = graph.add("patch_embedding", "patches", **tensors)
    graph.output(y)
    executor = Executor(device, [graph])
    for name, tensor in tensors.items():
        executor.write(tensor, arrays[name])
    for position in range(count):
        executor.write(tensors["position"], np.full(1, position, np.uint32))
        executor.step("patches")
        assert np.abs(executor.read(y)[0] - _golden("torch_layers")[case.name][position]).max() < 1e-5
    executor.close()


@pytest.mark.parametrize("shape", MLP_SHAPES, ids=str)
def test_mlp(device: Device, shape: tuple[int, int, int]) -> None:
    arrays = mlp_arrays(shape) | {"bias": np.zeros(shape[1], np.float32)}
    graph = Graph("mlp")
    tensors = {name: Tensor(name, array.shape, "float32", Role.INPUT) for name, array in arrays.items()}
    (hidden,) = graph.add("mlp", "mlp", {"situ": 0.0}, x=tensors["x"], w_in=tensors["w_in"])
    (y,) = graph.add("linear", "out", x=hidden, w=tensors["w_out"], bias=tensors["bias"])
    graph.output(y)
    executor = Executor(device, [graph])
    for name, tensor in tensors.items():
        executor.write(tensor, arrays[name])
    executor.step("mlp")
    assert np.abs(executor.read(y) - _golden("torch_layers")[f"mlp-{'-'.join(map(str, shape))}"]).max() < 1e-5
    executor.close()


@pytest.mark.parametrize("bounded", [0.0, 1.0], ids=["softplus", "bounded"])
def test_a_delta_memory_that_is_given_nothing_never_grows(vulkan_device: Device, bounded: float) -> None:
    """|k| <= 1, 0 < b < 1 and exp g < 1 keep the transition's spectral norm within 1, whatever its inputs are."""
    rng, (B, N, K, V) = np.random.default_rng(3), (4, 2, 9, 5)
    graph = Graph("decay")
    widths = {"q": N * K, "k": N * K, "z": N * K, "v": N * V, "beta": N}
    inputs = {name: Tensor(name, (B, width), "float32", Role.INPUT) for name, width in widths.items()}
    a, mode = Tensor("a", (N,), "float32", Role.WEIGHT), Tensor("mode", (B,), "uint32", Role.INPUT)
    memory = Tensor("memory", (B, N * K, V), "float32", Role.MEMORY)
    graph.add("delta_memory", "memory", {"bounded": bounded}, **inputs, a=a, mode=mode, memory=memory)
    executor = Executor(vulkan_device, [graph])
    executor.write(a, np.array([-6, 3], np.float32))
    executor.write(mode, np.full(B, STEP, np.uint32))
    executor.write(memory, rng.standard_normal((B, N * K, V)).astype(np.float32))
    heads = executor.read_state(memory).reshape(B, N, K, V)
    before = np.linalg.norm(heads, 2, axis=(2, 3))
    for scale in (0.01, 1, 1, 30, 1000):
        for name, tensor in inputs.items():
            values = scale * rng.standard_normal(tensor.shape)
            executor.write(tensor, np.zeros(tensor.shape, np.float32) if name == "v" else values.astype(np.float32))
        executor.step("decay")
        after = np.linalg.norm(executor.read_state(memory).reshape(B, N, K, V), 2, axis=(2, 3))
        assert (after <= before * (1 + 1e-5)).all()
        before = after
    assert (before > 0).any()
    executor.close()
