"""Small valid files of each kind, made anew each time: nothing to begin with is committed."""

from __future__ import annotations

import hashlib
import io
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save

from fuzzing.formats import CACHE_HEAD
from vkcat import states
from vkcat.config import StreamConfig, parse, to_json
from vkcat.device.vulkan.cache_file import Driver
from vkcat.importers.g2p_en import GRAPHEMES, phonemes
from vkcat.model.stream import StreamModel, build_stream
from vkcat.presets import initial_model, preset
from vkcat.shader import SOURCES, load
from vkcat.stored import StoredModel

WIDTH = 4
GRU = {"kind": "gru", "hidden": WIDTH}
RING = {"kind": "ring_attention", "heads": 2, "head_width": 3, "window": 4}
BASE: dict[str, Any] = {
    "format": "vkcat/1", "name": "small", "input": {"kind": "embedding", "symbols": 5}, "width": WIDTH,
    "blocks": [GRU], "output": {"kind": "token"},
}  # fmt: skip
LISTED = {"kind": "embedding", "symbols": ["a", "b", "?"], "unknown": "?", "max_tokens": 9}
CONFIGS: dict[str, dict[str, Any]] = {
    "tokens": {**BASE, "depth": "residual", "norm": {"kind": "rms", "eps": 1e-5}},
    "every block": {
        **BASE,
        "blocks": [
            GRU, {**GRU, "reset": "before"}, RING, {"kind": "mlp", "hidden": 3},
            {"kind": "delta_memory", "heads": 1, "key": 2, "value": 3, "rank": 1},
            {"kind": "experts", "experts": 3, "chosen": 2, "hidden": 2, "latent": 2, "shared": 2, "capacity": 1.5},
        ],
        "depth": {"kind": "attnres", "block": 2, "gated": True}, "norm": "rms", "modulation": {"context": 2},
    },
    "features": {
        **{key: BASE[key] for key in ("format", "name", "width")}, "features": {"size": 3}, "dtype": "float16",
        "patches": {"rows": 2, "columns": 1, "side": 2}, "blocks": [RING, GRU], "depth": "dwa",
        "output": {"kind": "continuous", "size": 2},
    },
    "both ways": {**BASE, "blocks": [{**GRU, "direction": "both"}, GRU], "output": {"kind": "continuous", "size": 2}},
    "transducer": {
        "format": "vkcat/1", "name": "small",
        "encoder": {"input": LISTED, "width": WIDTH, "blocks": [GRU]},
        "decoder": {"input": {"kind": "embedding", "symbols": ["<", ">"]}, "width": WIDTH, "blocks": [GRU],
                    "output": {"kind": "token", "start": "<", "end": ">", "max_tokens": 3}},
    },
}  # fmt: skip
DRIVER = Driver(0x10005, 0, 1, bytes(range(16)))


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def configs() -> list[bytes]:
    return [*map(_json, CONFIGS.values()), _json(to_json(preset("gru-l3")))]


@cache
def model(name: str = "tokens") -> StoredModel:
    return initial_model(CONFIGS[name], seed=1)


def weights() -> list[bytes]:
    arrays = dict(model().weights)
    halves = {name: array.astype(np.float16) if array.ndim > 1 else array for name, array in arrays.items()}
    return [save(arrays), save(halves, {"format": "pt"})]


@cache
def streams() -> StreamModel:
    config = parse(CONFIGS["every block"])
    assert isinstance(config, StreamConfig)
    return build_stream(config, 2)


def saved_states() -> list[bytes]:
    kept = {name: np.ones(tensor.shape, tensor.dtype) for name, tensor in sorted(streams().shared.kept.items())}
    outputs, fresh = np.zeros((2, streams().width), np.float32), np.array([False, True])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "state"
        states.save(path, "small", kept, outputs, fresh)
        return [path.read_bytes()]


def gru_weights() -> list[bytes]:
    """State dicts of torch.nn.GRU: plain, and both ways of two layers with what stands around it; one in bfloat16."""
    plain = _cells("", 3, 2, [""])
    both = _cells("rnn.", 3, 2, ["_l0", "_l0_reverse", "_l1", "_l1_reverse"]) | {
        "emb.weight": np.ones((5, 3), np.float32), "head.weight": np.ones((2, 4), np.float64),
        "head.bias": np.ones(2, np.float16),
    }  # fmt: skip
    half = save({name: (array.view(np.uint32) >> 16).astype(np.uint16) for name, array in plain.items()})
    return [save(plain), save(both), _bfloat16(half)]


def _bfloat16(data: bytes) -> bytes:
    end = 8 + int.from_bytes(data[:8], "little")
    header = data[8:end].replace(b'"U16"', b'"BF16"')
    return len(header).to_bytes(8, "little") + header + data[end:]


def _cells(prefix: str, inputs: int, hidden: int, ends: list[str]) -> dict[str, Any]:
    made = {}
    for end in ends:
        end = end or "_l0"
        width = 2 * hidden if "_l1" in end else inputs
        for name, shape in (("weight_ih", (3 * hidden, width)), ("weight_hh", (3 * hidden, hidden))):
            made[f"{prefix}{name}{end}"] = np.full(shape, 0.5, np.float32)
        for name in ("bias_ih", "bias_hh"):
            made[f"{prefix}{name}{end}"] = np.full(3 * hidden, 0.25, np.float32)
    return made


def onnx_models() -> list[bytes]:
    """An embedding, a layer both ways, a product; features whose weights are put together from constants."""
    return [_tagger(), _folded()]


def _tagger() -> bytes:
    from onnx import TensorProto, helper

    arrays = {"table": (5, 3), "w": (2, 6, 3), "r": (2, 6, 2), "b": (2, 12), "head": (4, 3), "bias": (3,)}
    nodes = [
        helper.make_node("Gather", ["table", "x"], ["e"]),
        helper.make_node("Transpose", ["e"], ["t"], perm=[1, 0, 2]),
        helper.make_node("GRU", ["t", "w", "r", "b"], ["y", "h"], hidden_size=2, direction="bidirectional",
                         linear_before_reset=1),
        helper.make_node("Transpose", ["y"], ["p"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["p", "shape"], ["q"], allowzero=0),
        helper.make_node("MatMul", ["q", "head"], ["m"]),
        helper.make_node("Add", ["m", "bias"], ["out"]),
    ]  # fmt: skip
    return _onnx(nodes, arrays, ("x", TensorProto.INT64, ["B", "T"]), {"shape": [0, 0, -1]})


def _folded() -> bytes:
    from onnx import TensorProto, helper

    arrays = {"w0": (6, 3), "r": (1, 6, 2), "half": (1, 6)}
    nodes = [
        helper.make_node("Unsqueeze", ["w0", "first"], ["w"]),
        helper.make_node("Concat", ["half", "half"], ["b"], axis=1),
        helper.make_node("Cast", ["r"], ["d"], to=TensorProto.DOUBLE),
        helper.make_node("Identity", ["d"], ["i"]),
        helper.make_node("GRU", ["x", "w", "i", "b"], ["y"], hidden_size=2),
        helper.make_node("Squeeze", ["y", "one"], ["out"]),
    ]
    return _onnx(nodes, arrays, ("x", TensorProto.FLOAT, ["T", "B", 3]), {"first": [0], "one": [1]})


def _onnx(nodes: list[Any], arrays: dict[str, Any], given: Any, integers: dict[str, list[int]]) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    held = [numpy_helper.from_array(np.full(shape, 0.5, np.float32), name) for name, shape in arrays.items()]
    held += [numpy_helper.from_array(np.array(values, np.int64), name) for name, values in integers.items()]
    outputs = [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["any"])]
    graph = helper.make_graph(nodes, "graph", [helper.make_tensor_value_info(*given)], outputs, held)
    made: bytes = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    return made


def checkpoints() -> list[bytes]:
    """g2p_en's arrays, small."""
    hidden, width = 2, 3
    shapes: dict[str, tuple[int, ...]] = {"emb": (0, width), "w_ih": (3 * hidden, width), "w_hh": (3 * hidden, hidden)}
    shapes |= {"b_ih": (3 * hidden,), "b_hh": (3 * hidden,)}
    symbols = {"enc": len(GRAPHEMES), "dec": len(phonemes())}
    arrays = {
        f"{part}_{name}": np.ones((count, width) if name == "emb" else shape, np.float32)
        for part, count in symbols.items()
        for name, shape in shapes.items()
    }
    arrays |= {"fc_w": np.ones((symbols["dec"], hidden), np.float32), "fc_b": np.ones(symbols["dec"], np.float32)}
    made = io.BytesIO()
    np.savez(made, **arrays)
    return [made.getvalue()]


def arrays() -> list[bytes]:
    made = []
    for array in (
        np.ones((3, 2), np.float32),
        np.arange(6, dtype=">i4").reshape(2, 3).T,
        np.float64(1),
        np.ones(0, "u1"),
    ):
        file = io.BytesIO()
        np.save(file, array)
        made.append(file.getvalue())
    return made


def images() -> list[bytes]:
    """PNG of every kind of pixel, and a JPEG."""
    from PIL import Image

    made = []
    pixels = np.arange(54, dtype=np.uint8).reshape(6, 9)
    for mode, kind in (("L", "PNG"), ("RGB", "PNG"), ("P", "PNG"), ("1", "PNG"), ("RGBA", "PNG"), ("L", "JPEG")):
        file = io.BytesIO()
        Image.fromarray(pixels).convert(mode).save(file, kind)
        made.append(file.getvalue())
    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint16)).save(file, "PNG")
    return [*made, file.getvalue()]


def modules() -> list[bytes]:
    return [load(name).code for name in ("add", "linear", "ring_attention", "argmax.subgroup", "floor")]


def sources() -> list[bytes]:
    return [(SOURCES / "add.comp").read_bytes(), (SOURCES / "rms_norm.comp").read_bytes()]


def caches() -> list[bytes]:
    data = b"\x20\0\0\0\x01\0\0\0" + b"".join(number.to_bytes(4, "little") for number in (DRIVER.vendor, DRIVER.device))
    data += DRIVER.uuid + b"what a driver keeps"
    return [CACHE_HEAD.pack(b"vkcatPC1", *DRIVER.fields, hashlib.sha256(data).digest(), len(data)) + data]


def tables() -> list[bytes]:
    return [_json({"llvmpipe, Mesa": {"linear B=1 K=8 N=8": [1, 8, 1, 8], "mlp": [2, 4, 2, 16]}, "other": {}})]


def profiles() -> list[bytes]:
    def series(schedule: str, name: str, us: list[float]) -> dict[str, Any]:
        return {"schedule": schedule, "backend": "vulkan", "name": name, "us": us}

    value = {
        "run": "1", "model": "small", "graph": "tokens", "batch": 1, "device": {"name": "llvmpipe", "driver": "Mesa"},
        "samples": [series("replay", "step", [5.5, 6.25] * 12), series("eager", "linear", [7.0]),
                    series("control", "hash", [3.5] * 21)],
    }  # fmt: skip
    return [_json(value)]


def symbol_lists() -> list[bytes]:
    return [b"a\nb\n\xc3\xa9", b"a\r\nb\r\n \r\n"]
