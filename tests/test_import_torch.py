"""`vkcat import torch-gru`: torch's own outputs of the same state dict, and each mistake a file can hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from conftest import ROOT
from safetensors.numpy import save_file
from torch_cases import IMPORT_CASES, ImportCase, import_input, import_state_dict

import vkcat
from vkcat.cli import cli
from vkcat.config import BYTES, ContinuousOutput, EmbeddingInput, GruBlock, StreamConfig, TokenOutput
from vkcat.device.interface import Device
from vkcat.errors import ModelError

Array = np.ndarray[Any, Any]
SMALL = IMPORT_CASES[0]


@lru_cache(maxsize=1)
def _golden() -> dict[str, Array]:
    with np.load(ROOT / "tests" / "golden" / "torch_import.npz") as file:
        return {name: file[name] for name in file.files}


def _options(case: ImportCase) -> list[str]:
    return [*(["--embedding", "emb"] if case.symbols else []), *(["--output", "head"] if case.outputs else [])]


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def _import(tensors: dict[str, Array], folder: Path, *options: str) -> Result:
    save_file(tensors, folder / "gru.safetensors")
    return _run("import", "torch-gru", folder / "gru.safetensors", folder / "out", *options)


def _imported(case: ImportCase, folder: Path) -> Path:
    result = _import(import_state_dict(case), folder, *_options(case))
    assert result.exit_code == 0, result.output
    return folder / "out"


def _outputs(folder: Path, case: ImportCase, device: Device | str) -> Array:
    """(B, T, O), whichever way the model runs."""
    loaded = vkcat.load(folder, device, batch=case.batch)
    x = import_input(case)
    try:
        if isinstance(loaded, vkcat.Sequences):
            return loaded.run(x)
        assert isinstance(loaded, vkcat.Session)
        if case.symbols:
            return np.stack([loaded.step(column) for column in x.T], axis=1)
        return loaded.read_features(x)
    finally:
        loaded.close()


@pytest.mark.parametrize("case", IMPORT_CASES, ids=lambda case: case.name)
def test_torch(vulkan_device: Device, case: ImportCase, tmp_path: Path) -> None:
    folder, expected = _imported(case, tmp_path), _golden()[case.name]
    for device, most in ((vulkan_device, 1e-5), ("reference", 1e-12)):
        outputs = _outputs(folder, case, device)
        assert outputs.shape == expected.shape
        assert np.abs(outputs - expected).max() < most


def test_lengths_are_as_shorter_sequences(tmp_path: Path) -> None:
    case = IMPORT_CASES[2]
    folder, x, lengths = _imported(case, tmp_path), import_input(case), [9, 4]
    whole = vkcat.load(folder, "reference", batch=2)
    one = vkcat.load(folder, "reference")
    assert isinstance(whole, vkcat.Sequences)
    assert isinstance(one, vkcat.Sequences)
    outputs = whole.run(x, lengths)
    for row, length in enumerate(lengths):
        assert np.abs(outputs[row, :length] - one.run(x[row, :length])[0]).max() < 1e-12
        assert not outputs[row, length:].any()
    assert whole.run(np.zeros((2, 0), np.int64)).shape == (2, 0, case.outputs)


def test_configuration(tmp_path: Path) -> None:
    config = vkcat.read_model(_imported(SMALL, tmp_path)).config
    assert isinstance(config, StreamConfig)
    assert config.stack.input == EmbeddingInput(symbols=11)
    assert config.stack.output == TokenOutput(), "as many outputs as symbols, and it can go on from its own"
    assert config.stack.blocks == (GruBlock(hidden=7),)


def test_outputs_of_both_directions_are_no_tokens_to_go_on_from(tmp_path: Path) -> None:
    case = ImportCase(3, 1, 9, 4, 5, 1, both=True, outputs=9)
    config = vkcat.read_model(_imported(case, tmp_path)).config
    assert isinstance(config, StreamConfig)
    assert config.stack.output == ContinuousOutput(size=9)


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
def test_symbols_from_a_file(tmp_path: Path, end: str) -> None:
    (tmp_path / "symbols").write_bytes(("\n".join("abcdefgh \u00e9j") + end).encode())
    result = _import(import_state_dict(SMALL), tmp_path, *_options(SMALL), "--symbols", str(tmp_path / "symbols"))
    assert result.exit_code == 0, result.output
    config = vkcat.read_model(tmp_path / "out").config
    assert isinstance(config, StreamConfig)
    assert config.stack.input == EmbeddingInput(symbols=tuple("abcdefgh \u00e9j"))


def test_symbols_that_are_bytes(tmp_path: Path) -> None:
    case = IMPORT_CASES[2]
    assert _import(import_state_dict(case), tmp_path, *_options(case), "--symbols", "bytes").exit_code == 0
    config = vkcat.read_model(tmp_path / "out").config
    assert isinstance(config, StreamConfig)
    assert config.stack.input == EmbeddingInput(symbols=BYTES)


def _save_raw(path: Path, tensors: dict[str, tuple[str, Array]]) -> None:
    """A safetensors file by hand: NumPy has no bfloat16 to write with."""
    import json

    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def test_other_floats_are_said(tmp_path: Path) -> None:
    tensors = {name: ("F32", array) for name, array in import_state_dict(SMALL).items()}
    exact = {"emb.weight": np.float16, "rnn.gru.weight_hh_l0": np.float64}
    for name, dtype in exact.items():
        tensors[name] = (f"F{8 * np.dtype(dtype).itemsize}", tensors[name][1].astype(dtype))
    upper = (tensors["head.weight"][1].view(np.uint32) >> 16).astype(np.uint16)
    head = (upper.astype(np.uint32) << 16).view(np.float32)
    tensors["head.weight"] = ("BF16", upper)
    _save_raw(tmp_path / "gru.safetensors", tensors)
    result = _run("import", "torch-gru", tmp_path / "gru.safetensors", tmp_path / "out", *_options(SMALL))
    assert result.exit_code == 0, result.output
    for part in ("1 of F16 made float32", "1 of BF16 made float32", "1 of F64 made float32"):
        assert part in result.output
    weights = vkcat.read_model(tmp_path / "out").weights
    assert np.array_equal(weights["output.weight"], head)
    assert np.array_equal(weights["input.weight"], tensors["emb.weight"][1].astype(np.float32))
    assert np.array_equal(weights["blocks.0.weight_hh"], tensors["rnn.gru.weight_hh_l0"][1].astype(np.float32))


def _without(*names: str) -> Callable[[dict[str, Array]], None]:
    return lambda tensors: [tensors.pop(name) for name in names] and None


def _with(name: str, array: Any, dtype: type = np.float32) -> Callable[[dict[str, Array]], None]:
    return lambda tensors: tensors.update({name: np.asarray(array, dtype)})


BOTH = ["--embedding", "emb", "--output", "head"]
GRU = "rnn.gru."


@pytest.mark.parametrize(
    ("change", "options", "parts"),
    [
        (_without(f"{GRU}weight_ih_l0"), BOTH, ["expected a torch.nn.GRU's weight_ih_l0 and so on, got emb.weight"]),
        (_without(f"{GRU}weight_hh_l0"), BOTH, ["rnn.gru.weight_hh_l0: expected a tensor (3H, H), got none"]),
        (_without(f"{GRU}bias_hh_l0"), BOTH, ["rnn.gru.bias_hh_l0: expected a tensor (21,), got none"]),
        (_without(f"{GRU}bias_ih_l0"), BOTH, ["expected no other tensors, got rnn.gru.bias_hh_l0"]),
        (_with(f"{GRU}weight_hh_l0", np.ones((28, 7))), BOTH, ["expected (21, 7), the three gates", "got (28, 7)"]),
        (_with(f"{GRU}weight_ih_l0", np.ones((21, 0))), BOTH, ["weight_ih_l0: expected (3H, I), got (21, 0)"]),
        (_with(f"{GRU}weight_ih_l0", np.ones(21)), BOTH, ["weight_ih_l0: expected (3H, I), got (21,)"]),
        (_with(f"{GRU}weight_ih_l2", np.ones((21, 7))), BOTH, ["weight_ih_l1: expected a tensor (21, 7), got none"]),
        (_with(f"{GRU}weight_ih_l0_reverse", np.ones((21, 4))), BOTH, ["_reverse: expected (21, 5), got (21, 4)"]),
        (_with("emb.weight", np.ones((11, 6))), BOTH, ["emb.weight: expected (11, 5), got (11, 6)"]),
        (_with("head.weight", np.ones((11, 5))), BOTH, ["head.weight: expected (11, 7), got (11, 5)"]),
        (_with("head.bias", np.ones(3)), BOTH, ["head.bias: expected (11,), got (3,)"]),
        (_with("head.bias", np.full(11, np.nan)), BOTH, ["head.bias: expected finite float32 values, got nan at [0]"]),
        (_with("head.bias", np.full(11, 1e39), np.float64), BOTH, ["expected finite float32 values, got 1e+39"]),
        (_with("head.bias", np.ones(11), np.int32), BOTH, ["head.bias: expected dtype F32", "got I32"]),
        (_with("more", np.ones(1)), BOTH, ["expected no other tensors, got more; see --embedding"]),
        (_with("b.weight_ih_l0", np.ones((3, 1))), BOTH, ["got the prefixes 'b.', 'rnn.gru.'; choose with --prefix"]),
        (_with("more", np.ones(1)), [*BOTH, "--prefix", "x"], ["--prefix: expected one of 'rnn.gru.', got 'x'"]),
        (_without(), ["--output", "head"], ["expected no other tensors, got emb.weight"]),
        (_without(), ["--output", "nose"], ["nose.weight: expected a tensor (N, K), got none"]),
        (_without(), ["--embedding", "nose"], ["nose.weight: expected a tensor (V, I), got none"]),
        (_without(), [*BOTH, "--symbols", "bytes"], ["emb.weight: expected 256 rows with --symbols bytes, got 11"]),
        (_without("emb.weight"), ["--output", "head", "--symbols", "bytes"], ["expected an --embedding, got none"]),
        (_without(), [*BOTH, "--symbols", "/no/such"], ["/no/such: expected a file of symbols", "No such file"]),
    ],
)
def test_mistakes(
    tmp_path: Path, change: Callable[[dict[str, Array]], None], options: list[str], parts: list[str]
) -> None:
    tensors = import_state_dict(SMALL)
    change(tensors)
    result = _import(tensors, tmp_path, *options)
    assert isinstance(result.exception, ModelError), (result.exception, result.output)
    for part in parts:
        assert part in str(result.exception)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"a\nb", "expected 11 symbols, one a line, as"),
        (b"a\nb\n\nd\ne\nf\ng\nh\ni\nj\nk", "line 3: expected printable characters, got ''"),
        (b"a\nb\na\nd\ne\nf\ng\nh\ni\nj\nk", "line 3: expected another symbol than before, got 'a'"),
        (b"\xff", "expected UTF-8"),
    ],
)
def test_mistakes_in_symbols(tmp_path: Path, text: bytes, part: str) -> None:
    (tmp_path / "symbols").write_bytes(text)
    result = _import(import_state_dict(SMALL), tmp_path, *BOTH, "--symbols", str(tmp_path / "symbols"))
    assert isinstance(result.exception, ModelError), (result.exception, result.output)
    assert part in str(result.exception)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no tensors")
    for name, part in (("text", "expected a whole safetensors file"), ("none", "expected a safetensors file, got no")):
        result = _run("import", "torch-gru", tmp_path / name, tmp_path / "out")
        assert isinstance(result.exception, ModelError), (result.exception, result.output)
        assert part in str(result.exception)


def test_prefix_chooses(tmp_path: Path) -> None:
    tensors = import_state_dict(IMPORT_CASES[1])
    result = _import(tensors, tmp_path, "--prefix", "rnn.gru")
    assert result.exit_code == 0, result.output
