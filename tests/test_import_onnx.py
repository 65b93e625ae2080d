"""`vkcat import onnx`: onnx's own reference on the same file, and each node that is not what a model here has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import vkcat
from vkcat.cli import cli
from vkcat.config import ContinuousOutput, EmbeddingInput, FeaturesInput, GruBlock, StreamConfig, TokenOutput
from vkcat.device.interface import Device
from vkcat.errors import ModelError

Array = np.ndarray[Any, Any]


class Graph:
    """Nodes and weights, drawn as they are asked for."""

    def __init__(self, *sizes: int | str, ids: bool = False) -> None:
        self.rng = np.random.default_rng(7)
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        dtype = TensorProto.INT64 if ids else TensorProto.FLOAT
        self.inputs = [helper.make_tensor_value_info("x", dtype, sizes)]

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values, dtype), name))
        return name

    def weight(self, *shape: int, dtype: Any = np.float32) -> str:
        return self.constant(self.rng.uniform(-0.6, 0.6, shape), dtype)

    def add(self, op: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """The name of the first output."""
        names = [f"{op.lower()}{len(self.nodes)}{'' if at == 0 else f'.{at}'}" for at in range(outputs)]
        self.nodes.append(helper.make_node(op, inputs, names, name=f"/{op}", **attributes))
        return names[0]

    def gru(self, x: str, inputs: int, hidden: int, direction: str = "forward", **attributes: Any) -> str:
        """Y (T, D, B, H), with a state of zeros unless `state` names another; `bias` False leaves it out."""
        count = 2 if direction == "bidirectional" else 1
        state, bias = attributes.pop("state", ""), attributes.pop("bias", True)
        arrays = [self.weight(count, 3 * hidden, inputs), self.weight(count, 3 * hidden, hidden)]
        arrays.append(self.weight(count, 6 * hidden) if bias else "")
        return self.add("GRU", x, *arrays, "", state, outputs=2, hidden_size=hidden, direction=direction, **attributes)

    def save(self, path: Path, *outputs: str) -> Path:
        # What the file says of its outputs' shape nobody reads, but it has to say something.
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["any"]) for name in outputs]
        graph = helper.make_graph(self.nodes, "graph", self.inputs, values, self.weights)
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
        return path


def _as_torch_exports(graph: Graph, x: str, inputs: int, hidden: int, layers: int, both: bool) -> str:
    """nn.GRU with batch_first, as torch.onnx.export of torch 2 writes it, for any batch; (B, T, D H)."""
    count = 2 if both else 1
    size = graph.add("Gather", graph.add("Shape", x), graph.constant(0), axis=0)
    sizes = [
        graph.constant([count * layers]),
        graph.add("Unsqueeze", size, graph.constant([0])),
        graph.constant([hidden]),
    ]
    zero = helper.make_tensor("zero", TensorProto.FLOAT, [1], [0.0])
    states = graph.add("ConstantOfShape", graph.add("Concat", *sizes, axis=0), value=zero)
    x = graph.add("Transpose", x, perm=[1, 0, 2])
    for layer in range(layers):
        ends = [graph.constant([at]) for at in (count * layer, count * (layer + 1))]
        state = graph.add("Slice", states, *ends, graph.constant([0]))
        direction = "bidirectional" if both else "forward"
        y = graph.gru(x, inputs, hidden, direction, state=state, linear_before_reset=1)
        if both:
            turned = graph.add("Transpose", y, perm=[0, 2, 1, 3])
            x = graph.add("Reshape", turned, graph.constant([0, 0, -1]), allowzero=0)
        else:
            x = graph.add("Squeeze", y, graph.constant([1]))
        inputs = count * hidden
    return graph.add("Transpose", x, perm=[1, 0, 2])


def _torch_tagger(path: Path) -> Path:
    graph = Graph("batch", "time", ids=True)
    x = graph.add("Gather", graph.weight(11, 5), "x")
    y = _as_torch_exports(graph, x, 5, 7, 2, both=True)
    product = graph.add("MatMul", y, graph.weight(14, 3))
    return graph.save(path, graph.add("Add", graph.weight(3), product))


def _torch_stream(path: Path) -> Path:
    graph = Graph("batch", "time", ids=True)
    x = graph.add("Gather", graph.weight(6, 5), graph.add("Cast", "x", to=TensorProto.INT32))
    y = _as_torch_exports(graph, x, 5, 9, 3, both=False)
    return graph.save(path, graph.add("MatMul", y, graph.weight(9, 6)))


def _keras_bidirectional(path: Path, axis: int = 2) -> Path:
    """Two nodes a layer, side by side; gates before the product, biases left out of one layer."""
    graph = Graph("batch", "time", 3)
    x = graph.add("Transpose", "x", perm=[1, 0, 2])
    width = 3
    for hidden, bias in ((1, True), (6, False)):
        ys = [graph.gru(x, width, hidden, direction, bias=bias) for direction in ("forward", "reverse")]
        if axis == 2:
            ys = [graph.add("Squeeze", y, graph.constant([1])) for y in ys]
            x = graph.add("Concat", *ys, axis=-1)
        else:
            y = graph.add("Transpose", graph.add("Concat", *ys, axis=1), perm=[0, 2, 1, 3])
            x = graph.add("Reshape", y, graph.constant([0, 0, 2 * hidden]))
        width = 2 * hidden
    return graph.save(path, graph.add("Transpose", x, perm=[1, 0, 2]))


def _keras_in_axis_1(path: Path) -> Path:
    return _keras_bidirectional(path, axis=1)


def _batch_first(path: Path) -> Path:
    """layout 1, sizes known, the raw Y of both directions as the output, and the last states beside it."""
    graph = Graph(2, 5, 4)
    y = graph.gru("x", 4, 3, "bidirectional", layout=1, linear_before_reset=1, activations=["sigmoid", "Tanh"] * 2)
    return graph.save(path, graph.add("Reshape", y, graph.constant([2, 5, 6])), f"{y}.1")


def _unbatched(path: Path) -> Path:
    """Gemm has two axes: the batch was only there for the GRU. Projected features."""
    graph = Graph("time", 5)
    x = graph.add("Gemm", "x", graph.weight(4, 5), graph.weight(4), transB=1)
    x = graph.add("Unsqueeze", x, graph.constant([1]))
    y = graph.gru(x, 4, 3, "reverse", linear_before_reset=1)
    y = graph.add("Squeeze", y, graph.constant([1, 2]))
    return graph.save(path, graph.add("Gemm", y, graph.weight(3, 2), graph.weight(1, 2)))


def _transposed_weight(path: Path) -> Path:
    """Weights through nodes that can be computed at once, and Constant nodes."""
    graph = Graph("time", "batch", 3)
    y = graph.gru("x", 3, 4, linear_before_reset=1)
    y = graph.add("Identity", graph.add("Squeeze", y, graph.constant([1])))
    tensor = numpy_helper.from_array(graph.rng.uniform(-1, 1, (2, 4)).astype(np.float32))
    weight = graph.add("Transpose", graph.add("Constant", value=tensor), perm=[1, 0])
    return graph.save(path, graph.add("MatMul", y, weight))


GRAPHS = {
    _torch_tagger: (2, 5),
    _torch_stream: (3, 4),
    _keras_bidirectional: (2, 6, 3),
    _keras_in_axis_1: (3, 4, 3),
    _batch_first: (2, 5, 4),
    _unbatched: (7, 5),
    _transposed_weight: (5, 2, 3),
}


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def _import(path: Path, *options: str) -> Result:
    return _run("import", "onnx", path, path.parent / "out", *options)


def _outputs(folder: Path, x: Array, device: Device | str) -> Array:
    """(B, T, V) of x (B, T, ...)."""
    loaded = vkcat.load(folder, device, batch=len(x))
    try:
        if isinstance(loaded, vkcat.Sequences):
            return loaded.run(x)
        assert isinstance(loaded, vkcat.Session)
        if x.ndim == 2:
            return np.stack([loaded.step(column) for column in x.T], axis=1)
        return loaded.read_features(x)
    finally:
        loaded.close()


@pytest.mark.parametrize("build", GRAPHS, ids=lambda build: build.__name__.strip("_"))
def test_onnx_reference(vulkan_device: Device, build: Callable[[Path], Path], tmp_path: Path) -> None:
    path = build(tmp_path / "model.onnx")
    result = _import(path)
    assert result.exit_code == 0, (result.output, result.exception)
    shape = GRAPHS[build]
    rng = np.random.default_rng(3)
    x = rng.integers(0, 6, shape) if len(shape) == 2 and build is not _unbatched else rng.uniform(-2, 2, shape)
    x = x if x.dtype.kind == "i" else x.astype(np.float32)
    expected = np.asarray(ReferenceEvaluator(str(path)).run(None, {"x": x})[0])
    if build is _unbatched:
        x, expected = x[None], expected[None]
    if build is _transposed_weight:
        x, expected = x.swapaxes(0, 1), expected.swapaxes(0, 1)
    for device in (vulkan_device, "reference"):
        outputs = _outputs(tmp_path / "out", x, device)
        assert outputs.shape == expected.shape
        assert np.abs(outputs - expected).max() < 1e-5


def test_configurations(tmp_path: Path) -> None:
    assert _import(_torch_stream(tmp_path / "model.onnx")).exit_code == 0
    config = vkcat.read_model(tmp_path / "out").config
    assert isinstance(config, StreamConfig)
    assert config.stack.input == EmbeddingInput(symbols=6)
    assert config.stack.blocks == (GruBlock(hidden=9),) * 3
    assert config.stack.output == TokenOutput()
    assert _import(_keras_bidirectional(tmp_path / "model.onnx")).exit_code == 0
    config = vkcat.read_model(tmp_path / "out").config
    assert isinstance(config, StreamConfig)
    assert config.stack.features == FeaturesInput(size=3, projection=False)
    assert config.stack.blocks[1] == GruBlock(hidden=6, reset="before", direction="both")
    assert config.stack.output == ContinuousOutput(size=12, projection=False)


def test_what_is_left_out_is_said(tmp_path: Path) -> None:
    result = _import(_batch_first(tmp_path / "model.onnx"))
    assert "; without its output gru0.1, the last states" in result.output
    graph = Graph("time", "batch", 3)
    w = [graph.weight(1, 6, 3, dtype=np.float64), graph.weight(1, 6, 2, dtype=np.float64)]
    y = graph.add("GRU", "x", *w, outputs=1, hidden_size=2)
    result = _import(graph.save(tmp_path / "model.onnx", y))
    assert result.exit_code == 0, result.exception
    assert "; 2 of float64 made float32" in result.output


def test_symbols(tmp_path: Path) -> None:
    (tmp_path / "symbols").write_text("a\nb\nc\nd\ne\nf\n")
    path = _torch_stream(tmp_path / "model.onnx")
    assert _import(path, "--symbols", str(tmp_path / "symbols")).exit_code == 0
    config = vkcat.read_model(tmp_path / "out").config
    assert isinstance(config, StreamConfig)
    assert config.stack.input == EmbeddingInput(symbols=tuple("abcdef"))
    _fails(_import(path, "--symbols", "bytes"), "the embedding: expected 256 rows with --symbols bytes, got 6")
    path = _keras_bidirectional(path)
    _fails(_import(path, "--symbols", "bytes"), "--symbols: expected a model with an embedding, got one without")


def _fails(result: Result, *parts: str) -> None:
    assert isinstance(result.exception, ModelError), (result.exception, result.output)
    line = str(result.exception)
    assert "\n" not in line
    for part in parts:
        assert part in line


def _layer(graph: Graph, x: str = "x", **attributes: Any) -> str:
    """(T, B, 4) of x (T, B, 3)."""
    return graph.add("Squeeze", graph.gru(x, 3, 4, **attributes), graph.constant([1]))


def _second_input(graph: Graph, name: str, dtype: int, *shape: int | str) -> str:
    graph.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
    return name


def _lengths(g: Graph) -> str:
    lengths = _second_input(g, "lengths", TensorProto.INT32, "batch")
    return g.add("GRU", "x", g.weight(1, 12, 3), g.weight(1, 12, 4), "", lengths, outputs=2, hidden_size=4)


def _sizes(g: Graph, w: tuple[int, ...], r: tuple[int, ...], b: tuple[int, ...], **attributes: Any) -> str:
    return g.add("GRU", "x", g.weight(*w), g.weight(*r), g.weight(*b), outputs=2, **attributes)


def _two_directions(g: Graph, first: str, second: str, *, axis: int = 2, **attributes: Any) -> str:
    y = _layer(g, direction=first)
    return g.add("Concat", y, _layer(g, direction=second, **attributes), axis=axis)


MISTAKES: list[tuple[Callable[[Graph], str], list[str]]] = [
    (lambda g: g.add("Relu", _layer(g)), ['model.onnx: node 2 (Relu "/Relu"): expected GRU, Gemm,', "got Relu"]),
    (lambda g: g.add("MatMul", "x", g.weight(3, 2)), ["expected Gather or features, GRU one", "got features, MatMul"]),
    (lambda g: _layer(g, clip=1.0), ['node 0 (GRU "/GRU"): clip: expected none, got 1.0']),
    (lambda g: _layer(g, activations=["Relu", "Tanh"]), ["activations: expected Sigmoid, Tanh, got Relu, Tanh"]),
    (lambda g: _layer(g, activation_alpha=[0.5]), ["activation_alpha: expected none, got [0.5]"]),
    (_lengths, ["sequence_lens: expected none, got the input lengths; give lengths to vkcat.Sequences.run"]),
    (lambda g: _layer(g, state=g.weight(1, 2, 4)), ["initial_h: expected none, or zeros, got a constant"]),
    (
        lambda g: _layer(g, state=_second_input(g, "h0", TensorProto.FLOAT, 1, "batch", 4)),
        ["initial_h: expected none, or zeros, got the input h0"],
    ),
    (lambda g: _sizes(g, (1, 12, 2), (1, 12, 4), (1, 24)), ["W: expected (1, 12, 3), got (1, 12, 2)"]),
    (lambda g: _sizes(g, (1, 12, 3), (1, 11, 4), (1, 24)), ["R: expected (1, 12, 4), got (1, 11, 4)"]),
    (lambda g: _sizes(g, (1, 12, 3), (1, 12, 4), (1, 12)), ["B: expected (1, 24), got (1, 12)"]),
    (lambda g: _sizes(g, (2, 12, 3), (1, 12, 4), (1, 24)), ["W: expected (1, 12, 3), got (2, 12, 3)"]),
    (lambda g: _sizes(g, (1, 12, 3), (1, 12, 4), (1, 24), hidden_size=5), ["hidden_size: expected 4 as R has, got 5"]),
    (
        lambda g: g.add("GRU", "x", "x", g.weight(1, 12, 4), outputs=2),
        ["W: expected weights of the file, got the input x"],
    ),
    (
        lambda g: g.add("Reshape", _layer(g), g.constant([-1, 4])),
        ["node 2 (Reshape", "shape: expected time, batch and channels apart, got (x[0] x x[1])"],
    ),
    (
        lambda g: g.add("Reshape", _layer(g), g.constant([0, 0, 2, 2])),
        ["node 2 (Reshape", "shape: expected axes kept whole, got 2 beside (hidden 4)"],
    ),
    (lambda g: g.add("Reshape", _layer(g), "x"), ["shape: expected sizes, got the input x"]),
    (
        lambda g: g.add("Reshape", g.gru("x", 3, 4, "bidirectional"), g.constant([0, 0, -1])),
        ["node 1 (Reshape", "expected time, batch and channels apart, got (x[1] x hidden 4)"],
    ),
    (
        lambda g: g.gru(g.add("Transpose", _layer(g), perm=[1, 0, 2]), 4, 2),
        ["node 3 (GRU", "X: expected time (x[0]) as before, got (x[1])"],
    ),
    (
        lambda g: g.gru(g.add("Transpose", _layer(g), perm=[0, 2, 1]), 4, 2),
        ["node 3 (GRU", "X: expected batch apart, got (x[0], hidden 4, x[1])"],
    ),
    (
        lambda g: g.add("Squeeze", _layer(g), g.constant([0])),
        ["node 2 (Squeeze", "axis 0: expected size 1, got (x[0])"],
    ),
    (
        lambda g: g.add(
            "MatMul", g.add("Transpose", g.gru("x", 3, 4, "bidirectional"), perm=[0, 2, 3, 1]), g.weight(2, 2)
        ),
        ["MatMul", "all channels, direction by direction, in the last axis"],
    ),
    (
        lambda g: g.add("Transpose", g.gru("x", 3, 4, "bidirectional"), perm=[0, 2, 3, 1]),
        [
            "output transpose1: expected channels last, direction by direction",
            "got (x[0], x[1], hidden 4, direction 2)",
        ],
    ),
    (
        lambda g: g.add("Transpose", _layer(g), perm=[0, 2, 1]),
        ["output transpose2: expected channels last", "got (x[0], hidden 4, x[1])"],
    ),
    (lambda g: g.add("MatMul", _layer(g), g.weight(5, 2)), ["expected weights for the 4 channels", "got for 5"]),
    (lambda g: g.add("Add", _layer(g), g.weight(4)), ["node 2 (Add", "expected a bias after MatMul"]),
    (
        lambda g: g.add("Add", g.add("MatMul", _layer(g), g.weight(4, 2)), g.weight(3)),
        ["node 3 (Add", "bias: expected (2,), got (3,)"],
    ),
    (
        lambda g: g.add("Add", g.add("MatMul", _layer(g), g.weight(4, 2)), g.weight(2, 1, 1)),
        ["node 3 (Add", "bias: expected (2,), got (2, 1, 1)"],
    ),
    (
        lambda g: g.add("MatMul", g.add("MatMul", _layer(g), g.weight(4, 2)), g.weight(2, 2)),
        ["one MatMul or Gemm at most at an end, got features, GRU, MatMul, MatMul"],
    ),
    (
        lambda g: g.add("Gemm", g.add("Squeeze", "x", g.constant([1])), g.weight(3, 2)),
        ["node 0 (Squeeze", "axis 1: expected size 1"],
    ),
    (
        lambda g: g.add("Gather", _layer(g), g.constant(-1), axis=0),
        ["node 2 (Gather", "rows of a constant table by ids", "got what is computed at each step by a constant"],
    ),
    (lambda g: g.add("Slice", _layer(g), *[g.constant([0])] * 2), ["node 2 (Slice", "expected a slice of zeros"]),
    (lambda g: f"{g.gru('x', 3, 4)}.1", ["outputs: expected one of every step, got 0 among gru0.1"]),
    (lambda g: g.add("Identity", g.weight(2)), ["output identity0: expected what a GRU made", "got a constant"]),
    (lambda g: _two_directions(g, "reverse", "forward"), ["expected a forward GRU, then a reverse one, got reverse"]),
    (lambda g: _two_directions(g, "forward", "reverse", axis=1), ["expected channels side by side, got axis 1"]),
    (
        lambda g: _two_directions(g, "forward", "reverse", linear_before_reset=1),
        ["node 4 (Concat", "expected two GRUs alike"],
    ),
    (lambda g: g.add("Concat", _layer(g), "x", axis=2), ["node 2 (Concat", "expected the outputs of two GRU nodes"]),
    (lambda g: g.add("Cast", _layer(g), to=TensorProto.FLOAT16), ["node 2 (Cast", "expected a cast to float32"]),
    (lambda g: _layer(g, state=g.add("Expand", "x", g.constant([1]))), ["node 0 (Expand", "expected zeros to expand"]),
]


@pytest.mark.parametrize(("build", "parts"), MISTAKES)
def test_mistakes(tmp_path: Path, build: Callable[[Graph], str], parts: list[str]) -> None:
    graph = Graph("time", "batch", 3)
    output = build(graph)
    _fails(_import(graph.save(tmp_path / "model.onnx", output)), *parts)
    assert not (tmp_path / "out").exists()


def test_known_sizes_that_agree_by_chance_are_no_rearrangement(tmp_path: Path) -> None:
    """Time and batch are both 4: a Reshape leaves them, a Transpose does not, and the next layer sees it."""
    graph = Graph(4, 4, 3)
    y = graph.add("Reshape", graph.gru("x", 3, 4), graph.constant([4, 4, 4]))
    assert _import(graph.save(tmp_path / "model.onnx", graph.gru(y, 4, 2))).exit_code == 0
    graph = Graph(4, 4, 3)
    y = graph.add("Transpose", _layer(graph), perm=[1, 0, 2])
    _fails(_import(graph.save(tmp_path / "model.onnx", graph.gru(y, 4, 2))), "expected time (x[0] 4) as before")


def test_ids_that_are_no_table_rows(tmp_path: Path) -> None:
    graph = Graph("batch", "time", ids=True)
    rows = graph.add("Gather", graph.weight(5, 3), "x", axis=1)
    _fails(_import(graph.save(tmp_path / "model.onnx", rows)), "node 0 (Gather", "axis: expected 0, got 1")


def test_weights_beside_the_file(tmp_path: Path) -> None:
    path = _torch_stream(tmp_path / "plain.onnx")
    beside = tmp_path / "folder" / "model.onnx"
    beside.parent.mkdir()
    model = onnx.load(path)
    onnx.save(model, beside, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert _import(path).exit_code == 0
    assert _run("import", "onnx", beside, tmp_path / "other").exit_code == 0
    first, second = (vkcat.read_model(tmp_path / name).weights for name in ("out", "other"))
    assert all(np.array_equal(first[name], second[name]) for name in first)
    (tmp_path / "weights.bin").write_bytes((beside.parent / "weights.bin").read_bytes())
    model = onnx.load(beside, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../weights.bin"
    beside.write_bytes(model.SerializeToString())
    result = _run("import", "onnx", beside, tmp_path / "third")
    _fails(result, "expected external data in its own folder, got ../weights.bin")


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text.onnx").write_text("no graph")
    _fails(_import(tmp_path / "text.onnx"), "text.onnx: expected an ONNX file")
    _fails(_import(tmp_path / "none.onnx"), "none.onnx: expected an ONNX file, got No such file or directory")


def test_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _torch_stream(tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    _fails(_import(path), "expected the package onnx, got none; pip install 'vkcat[onnx]'")


def test_weights_that_are_not_finite(tmp_path: Path) -> None:
    graph = Graph("time", "batch", 3)
    w = graph.constant(np.full((4, 2), np.inf), np.float32)
    output = graph.add("MatMul", _layer(graph), w)
    _fails(_import(graph.save(tmp_path / "model.onnx", output)), "node 2 (MatMul", "B: expected finite", "got inf at")


def test_export_takes_what_torch_has(tmp_path: Path) -> None:
    assert _import(_torch_tagger(tmp_path / "model.onnx")).exit_code == 0
    assert _run("export", tmp_path / "out", tmp_path / "out.safetensors").exit_code == 0
    assert _import(_keras_bidirectional(tmp_path / "model.onnx")).exit_code == 0
    _fails(_run("export", tmp_path / "out", tmp_path / "out.safetensors"), "blocks[0].reset: expected 'after'")
