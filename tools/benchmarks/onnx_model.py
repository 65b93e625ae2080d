"""The model as an ONNX graph of one step, run by onnxruntime: its own fused GRU and RMSNormalization.

States are inputs and outputs. They stay in onnxruntime's memory: two sets of values take turns, bound once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.contender import Settings
from benchmarks.scene import Scene
from vkcat.blocks.ring_attention import alibi
from vkcat.config import GruBlock, ResidualDepth, RingAttentionBlock, RmsNorm, Stack, StreamConfig
from vkcat.errors import ModelError, mismatch

Array = NDArray[Any]
OPSET, IR_VERSION = 23, 10


@dataclass
class Builder:
    """Nodes, constants, and states by name with the value that replaces each after a step."""

    batch: int
    weights: Mapping[str, Array]
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)

    def add(self, op: str, *inputs: str | Array, **attributes: Any) -> str:
        """One node with one output; arrays become constants."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, [self._named(one) for one in inputs], [name], **attributes))
        return name

    def _named(self, value: str | Array) -> str:
        if isinstance(value, str):
            return value
        name = f"c{len(self.constants)}"
        self.constants[name] = value
        return name

    def linear(self, x: str, name: str) -> str:
        y = self.add("MatMul", x, np.ascontiguousarray(self.weights[f"{name}.weight"].T))
        bias = self.weights.get(f"{name}.bias")
        return y if bias is None else self.add("Add", y, bias)

    def norm(self, x: str, name: str, stack: Stack) -> str:
        if not isinstance(stack.norm, RmsNorm):
            return x
        return self.add("RMSNormalization", x, self.weights[f"{name}.weight"], axis=-1, epsilon=stack.norm.eps)

    def gru(self, x: str, name: str, block: GruBlock) -> str:
        """ONNX has the gates in the order z, r, n, and a layer's weights with an axis for the directions."""

        def ordered(part: str) -> Array:
            r, z, n = np.split(self.weights[f"{name}.{part}"], 3)
            return np.asarray(np.concatenate([z, r, n])[None])

        biases = np.concatenate([ordered("bias_ih"), ordered("bias_hh")], axis=1)
        state = f"{name}.h"
        one = np.array([0], np.int64)
        inputs = self.add("Unsqueeze", x, one), ordered("weight_ih"), ordered("weight_hh"), biases, ""
        before = self.add("Unsqueeze", state, one)
        made = f"{name}.made"
        self.nodes.append(
            helper.make_node(
                "GRU",
                [self._named(value) for value in (*inputs, before)],
                ["", made],
                hidden_size=block.hidden,
                linear_before_reset=int(block.reset == "after"),
            )
        )
        self.states[state] = self.add("Squeeze", made, one)
        return self.states[state]

    def ring_attention(self, x: str, name: str, block: RingAttentionBlock) -> str:
        """Attention over the last W steps; t (B) counts them. Scores are laid out as (B, G, N / G, W)."""
        B, W, G, d = self.batch, block.window, block.groups, block.head_width
        shared = block.heads // G
        t, window = f"{name}.t", np.array([W], np.int64)
        at = self.add("Mod", t, window)
        indices = self.add("Concat", np.arange(B)[:, None], self.add("Unsqueeze", at, np.array([1], np.int64)), axis=1)
        rings = {}
        for ring, part in (("k_ring", "k"), ("v_ring", "v")):
            state = f"{name}.{ring}"
            self.states[state] = self.add("ScatterND", state, indices, self.linear(x, f"{name}.{part}"))
            rings[part] = self.add("Reshape", self.states[state], np.array([B, W, G, d], np.int64))
        self.states[t] = self.add("Add", t, np.array([1], np.int64))
        column = self.add("Unsqueeze", at, np.array([1], np.int64))
        ages = self.add("Mod", self.add("Sub", self.add("Add", column, window), np.arange(W)[None]), window)
        unwritten = self.add("Greater", ages, self.add("Unsqueeze", t, np.array([1], np.int64)))
        slopes = alibi(block.heads) if block.slopes == "alibi" else np.zeros(block.heads, np.float32)
        wide = np.array([1, 2], np.int64)
        aged = self.add("Unsqueeze", self.add("Cast", ages, to=TensorProto.FLOAT), wide)
        bias = self.add("Mul", aged, -slopes.reshape(1, G, shared, 1))
        infinite = np.array(-np.inf, np.float32)
        bias = self.add("Where", self.add("Unsqueeze", unwritten, wide), infinite, bias)
        q = self.add("Reshape", self.linear(x, f"{name}.q"), np.array([B, G, shared, d], np.int64))
        q = self.add("Mul", q, np.array(d**-0.5, np.float32))
        scores = self.add("MatMul", q, self.add("Transpose", rings["k"], perm=[0, 2, 3, 1]))
        weights = self.add("Softmax", self.add("Add", scores, bias), axis=-1)
        o = self.add("MatMul", weights, self.add("Transpose", rings["v"], perm=[0, 2, 1, 3]))
        return self.linear(self.add("Reshape", o, np.array([B, -1], np.int64)), f"{name}.o")


def _step(builder: Builder, stack: Stack) -> tuple[str, str]:
    """The token drawn from the state `logits`, and the logits after it. Raises `ModelError`."""
    token = builder.add("ArgMax", "logits", axis=1, keepdims=0)
    h = builder.add("Gather", builder.weights["input.weight"], token)
    made = []
    for at, block in enumerate(stack.blocks):
        x = builder.norm(h, f"norms.{at}", stack)
        if isinstance(block, GruBlock):
            made.append(builder.gru(x, f"blocks.{at}", block))
        elif isinstance(block, RingAttentionBlock):
            made.append(builder.ring_attention(x, f"blocks.{at}", block))
        else:
            raise ModelError(mismatch("onnx: block", "gru or ring_attention", block.kind))
        h = builder.add("Add", h, made[-1]) if isinstance(stack.depth, ResidualDepth) else made[-1]
    h = builder.norm(h, "norm", stack)
    if stack.modulation is not None:
        film = builder.linear(made[stack.modulation.context], "modulation")
        width = stack.width
        gamma, beta = (
            builder.add("Slice", film, *(np.array([at], np.int64) for at in (start, start + width, 1)))
            for start in (0, width)
        )
        scale = builder.add("Add", gamma, np.array(1, np.float32))
        h = builder.add("Add", builder.add("Mul", h, scale), beta)
    return token, builder.linear(h, "output")


def build(stack: Stack, weights: Mapping[str, Array], start: Mapping[str, Array]) -> tuple[bytes, dict[str, str], str]:
    """A model of one step from states `start` by name: its file, the successor of each state, and the token's name."""
    builder = Builder(len(start["logits"]), weights)
    token, builder.states["logits"] = _step(builder, stack)
    types = {name: helper.np_dtype_to_tensor_dtype(start[name].dtype) for name in builder.states}
    inputs = [helper.make_tensor_value_info(name, types[name], start[name].shape) for name in builder.states]
    outputs = [
        helper.make_tensor_value_info(new, types[name], start[name].shape) for name, new in builder.states.items()
    ]
    outputs.append(helper.make_tensor_value_info(token, TensorProto.INT64, [builder.batch]))
    constants = [numpy_helper.from_array(array, name) for name, array in builder.constants.items()]
    graph = helper.make_graph(builder.nodes, "step", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    return model.SerializeToString(), builder.states, token


class OnnxContender:
    """See `benchmarks.contender.Contender`."""

    notes: list[str] = []

    def __init__(self, scene: Scene, settings: Settings) -> None:
        stored = scene.stored
        assert isinstance(stored.config, StreamConfig)
        saved = scene.start(stored)
        start = saved.kept | {"logits": saved.outputs}
        # ONNX has no uint32 arithmetic to speak of; its indices are int64.
        start = {name: array.astype(np.int64) if array.dtype == np.uint32 else array for name, array in start.items()}
        model, successors, token = build(stored.config.stack, stored.weights, start)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = settings.library_threads, 1
        self._session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        value = onnxruntime.OrtValue.ortvalue_from_numpy
        slots = [{name: value(np.array(start[name])) for name in successors} for _ in range(2)]
        self._logits = [slot["logits"] for slot in slots]
        self._tokens = value(np.zeros(scene.batch, np.int64))
        self._bindings = [self._binding(slots[p], slots[1 - p], successors, token) for p in range(2)]
        self._parity = 0

    def _binding(
        self, before: Mapping[str, Any], after: Mapping[str, Any], successors: Mapping[str, str], token: str
    ) -> Any:
        binding = self._session.io_binding()
        for name, new in successors.items():
            binding.bind_ortvalue_input(name, before[name])
            binding.bind_ortvalue_output(new, after[name])
        binding.bind_ortvalue_output(token, self._tokens)
        return binding

    @property
    def versions(self) -> Mapping[str, str]:
        return {"onnxruntime": onnxruntime.__version__, "onnx": onnx.__version__, "numpy": np.__version__}

    def generate(self, count: int) -> Array:
        tokens = []
        for _ in range(count):
            self._session.run_with_iobinding(self._bindings[self._parity])
            self._parity ^= 1
            tokens.append(self._tokens.numpy().copy())
        return np.asarray(np.stack(tokens, axis=1), np.uint32)

    def logits(self) -> Array:
        return np.array(self._logits[self._parity].numpy())

    def device_ns(self, count: int) -> None:
        del count

    def close(self) -> None:
        """onnxruntime releases what nothing refers to."""


def open_contender(scene: Scene, settings: Settings) -> OnnxContender:
    return OnnxContender(scene, settings)
