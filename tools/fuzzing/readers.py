"""Everything that reads a file which others may have made: how it is read, what it begins with, what it may take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
from msgspec import Struct

from fuzzing import damage, formats, seeds
from vkcat import states, tilings
from vkcat.config import load_config
from vkcat.device.interface import DeviceInfo, Limits
from vkcat.device.limits import check_shader
from vkcat.device.vulkan import cache_file
from vkcat.images import load_image, load_numbers
from vkcat.importers.g2p_en import read_checkpoint
from vkcat.importers.onnx_gru import read_onnx
from vkcat.importers.symbols import read_symbols
from vkcat.importers.torch_gru import read_state_dict
from vkcat.model import build
from vkcat.profile import compare, samples
from vkcat.shader import Shader, load_file
from vkcat.spirv import reflect
from vkcat.weights import load_weights

MEBIBYTE = 1 << 20


class Reader(Struct, frozen=True):
    """`read` is given a folder in which `file` has been written. Reading may take `times` the file and `megabytes`."""

    name: str
    file: str
    read: Callable[[Path], object]
    seeds: Callable[[], list[bytes]]
    damaged: Callable[[bytes, Random], bytes]
    times: int
    megabytes: int
    seconds: float = 5.0

    def most_bytes(self, size: int) -> int:
        return self.times * size + self.megabytes * MEBIBYTE


def _config(folder: Path) -> None:
    build(load_config(folder))


def _weights(folder: Path) -> None:
    load_weights(folder, build(seeds.model().config).weights)


def _state(folder: Path) -> None:
    model = seeds.streams()
    outputs = (model.batch, model.width)
    for dtype in (np.float32, np.float64):
        states.read(folder / "state", "small", model.shared.kept, outputs, dtype, model.limits)


def _gru_weights(folder: Path) -> None:
    path = folder / "gru.safetensors"
    around = b"head.weight" in path.read_bytes()
    modules = {"embedding": "emb", "output": "head"} if around else {}
    read_state_dict(path, **modules)


def _module(folder: Path) -> None:
    """What is checked before a driver is given it, without spirv-val, which would find most of it first."""
    code = (folder / "shader.spv").read_bytes()
    interface = reflect(code)
    defaults = [default for _, default in interface.spec.values()]
    check_shader(Shader("shader", code, interface), defaults, DEVICE)


def _source(folder: Path) -> None:
    shader = load_file("add", folder / "shader.comp")
    check_shader(shader, [default for _, default in shader.interface.spec.values()], DEVICE)


def _profile(folder: Path) -> None:
    one = samples.read(str(folder / "profile.json"))
    found = compare.compare(one, one)
    assert list(compare.lines(found))
    compare.table(found)


DEVICE = DeviceInfo(
    index=0, name="none", kind="cpu", api_version=(1, 1, 0), driver="none", subgroup_size=8, subgroup_arithmetic=True,
    float16=False, timestamp_bits=64, timestamp_period=1.0, compute_queue_family=0,
    limits=Limits(1 << 27, 1 << 30, 64, (65535,) * 3, (1024, 1024, 64), 1024, 32 << 10, 128, 32),
)  # fmt: skip

_LIST = (
    Reader("config", "config.json", _config, seeds.configs, damage.of_json, 64, 96),
    Reader("weights", "model.safetensors", _weights, seeds.weights, formats.of_safetensors, 48, 8),
    Reader("state", "state", _state, seeds.saved_states, formats.of_safetensors, 48, 8),
    Reader("gru_weights", "gru.safetensors", _gru_weights, seeds.gru_weights, formats.of_safetensors, 48, 8),
    Reader("onnx", "gru.onnx", lambda folder: read_onnx(folder / "gru.onnx"), seeds.onnx_models,
           formats.of_protobuf, 64, 16),
    Reader("g2p", "checkpoint20.npz", lambda folder: read_checkpoint(folder / "checkpoint20.npz"), seeds.checkpoints,
           formats.of_npz, 8, 8),
    Reader("npy", "x.npy", lambda folder: load_numbers(folder / "x.npy"), seeds.arrays, formats.of_npy, 2, 2),
    Reader("image", "x.png", lambda folder: load_image(folder / "x.png"), seeds.images, formats.of_png, 8, 256),
    Reader("spirv", "shader.spv", _module, seeds.modules, formats.of_words, 64, 2),
    Reader("glsl", "shader.comp", _source, seeds.sources, formats.of_glsl, 64, 16, seconds=70),
    Reader("pipeline_cache", "cache.bin", lambda folder: cache_file.read(folder / "cache.bin", seeds.DRIVER),
           seeds.caches, formats.of_cache, 4, 1),
    Reader("tilings", "tilings.json", lambda folder: tilings.read(folder / "tilings.json"), seeds.tables,
           damage.of_json, 64, 4),
    Reader("profile", "profile.json", _profile, seeds.profiles, damage.of_json, 64, 128),
    Reader("symbols", "symbols.txt", lambda folder: read_symbols(str(folder / "symbols.txt"), 3, "emb"),
           seeds.symbol_lists, damage.of_bytes, 64, 2),
)  # fmt: skip
READERS = {reader.name: reader for reader in _LIST}
