"""Mistakes a user can make: one line that names file, name, expected and got; exit code 2; nothing written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import load_file, save_file

from vkcat.cli import cli
from vkcat.config import load_config, parse, to_json
from vkcat.errors import ModelError, VkcatError


def _run(*arguments: str, text: str | None = None) -> Result:
    return CliRunner().invoke(cli, list(arguments), input=text)


def _fails(result: Result, *parts: str) -> None:
    """A VkcatError (which main() prints on one line with exit code 2) whose line has all parts."""
    assert isinstance(result.exception, VkcatError), (result.exception, result.output)
    line = str(result.exception)
    assert "\n" not in line
    for part in parts:
        assert part in line, line


@pytest.fixture
def model(g2p: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(g2p, tmp_path / "model"))


def _edit_config(model: Path, change: Callable[[dict[str, Any]], object]) -> None:
    value = json.loads((model / "config.json").read_text())
    change(value)
    (model / "config.json").write_text(json.dumps(value))


def _edit_weights(model: Path, change: Callable[[dict[str, Any]], object]) -> None:
    arrays = load_file(model / "model.safetensors")
    change(arrays)
    save_file(arrays, model / "model.safetensors")


def test_empty_word(model: Path) -> None:
    result = _run("run", str(model), "hello", "", "--device", "reference")
    _fails(result, "word: expected at least one character, got an empty word")
    assert result.stdout == "", "nothing is printed before the mistake is found"


def test_empty_line_is_named(model: Path) -> None:
    result = _run("run", str(model), "--device", "reference", text="hello\n\nworld\n")
    _fails(result, "line 2: word: expected at least one character, got an empty word")
    assert result.stdout == "hello\tHH EH1 L OW0\n"


def test_10000_characters(model: Path) -> None:
    result = _run("run", str(model), "a" * 10_000, "--device", "reference")
    _fails(result, "expected at most 256 characters, got 10000", "encoder.input.max_tokens in config.json")


def test_unknown_character_is_unk(model: Path) -> None:
    result = _run("run", str(model), "na\u00efve", "na\u4e16ve", "--device", "reference")
    assert result.exit_code == 0
    words = dict(line.split("\t") for line in result.stdout.splitlines())
    assert words["na\u00efve"] == words["na\u4e16ve"]


def test_unknown_character_without_unk_is_refused(model: Path) -> None:
    _edit_config(model, lambda c: c["encoder"]["input"].pop("unknown"))
    result = _run("run", str(model), "it's", "--device", "reference")
    _fails(result, 'word "it\'s": expected characters among the model\'s symbols, got "\'"')


def test_invalid_utf8_on_standard_input(model: Path) -> None:
    result = CliRunner().invoke(cli, ["run", str(model), "--device", "reference"], input=b"a\xff\n")
    assert result.exit_code == 0
    assert result.stdout.startswith("a\ufffd\t")


@pytest.mark.parametrize("size", [0, 7, 100, 5000])
def test_truncated_weights(model: Path, size: int) -> None:
    path = model / "model.safetensors"
    path.write_bytes(path.read_bytes()[:size])
    _fails(_run("run", str(model), "a", "--device", "reference"), str(path), "expected a whole safetensors file, got")


def test_foreign_weights(model: Path) -> None:
    save_file({"bert.pooler": np.zeros((2, 2), np.float32)}, model / "model.safetensors")
    result = _run("run", str(model), "a", "--device", "reference")
    _fails(result, "model.safetensors: expected the 12 tensors that config.json asks for", "unknown bert.pooler")


def test_weights_that_are_no_safetensors(model: Path) -> None:
    (model / "model.safetensors").write_bytes(b"PK\x03\x04" * 100)
    _fails(_run("run", str(model), "a", "--device", "reference"), "expected a whole safetensors file")


def test_missing_weights(model: Path) -> None:
    (model / "model.safetensors").unlink()
    _fails(_run("run", str(model), "a", "--device", "reference"), "model.safetensors: expected a model's weights")


def test_wrong_shape(model: Path) -> None:
    name = "decoder.blocks.0.weight_hh"
    _edit_weights(model, lambda w: w.update({name: np.zeros((768, 128), np.float32)}))
    result = _run("run", str(model), "a", "--device", "reference")
    _fails(result, f"model.safetensors: {name}: expected (768, 256), got (768, 128); see the sizes in config.json")


def test_wrong_dtype(model: Path) -> None:
    _edit_weights(model, lambda w: w.update({"decoder.output.bias": np.zeros(74, np.float16)}))
    _fails(_run("run", str(model), "a", "--device", "reference"), "decoder.output.bias: expected dtype F32, got F16")


def test_weights_too_great_for_float16(model: Path) -> None:
    _edit_config(model, lambda c: c.update(dtype="float16"))
    _edit_weights(model, lambda w: w["encoder.input.weight"].__setitem__((3, 5), 70000))
    result = _run("run", str(model), "a", "--device", "reference")
    _fails(result, "encoder.input.weight: expected what float16 can hold, got 70000.0 at [3, 5]")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite(model: Path, value: float) -> None:
    _edit_weights(model, lambda w: w["encoder.input.weight"].__setitem__((3, 5), value))
    result = _run("run", str(model), "a", "--device", "reference")
    _fails(result, f"encoder.input.weight: expected finite values, got {value} at [3, 5]")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.pop("decoder"), "config.json: decoder: expected a value of type dict, got no such key"),
        (
            lambda c: c["encoder"].pop("width"),
            "config.json: encoder.width: expected a value of type int, got no such key",
        ),
        (lambda c: c.update(colour=1), "config.json: expected no other keys, got unknown 'colour'"),
        (
            lambda c: c["encoder"]["blocks"][0].update(hiden=4),
            "config.json: encoder.blocks[0]: expected no other keys, got unknown 'hiden'",
        ),
        (lambda c: c["encoder"]["blocks"][0].update(hidden="x"), 'encoder.blocks[0].hidden: expected int, got "x"'),
        (lambda c: c["encoder"]["blocks"][0].update(hidden=True), "encoder.blocks[0].hidden: expected int, got true"),
        (lambda c: c["encoder"]["blocks"][0].update(hidden=0), "encoder.blocks[0].hidden: expected 1 to 65536, got 0"),
        (
            lambda c: c["encoder"]["blocks"][0].update(kind="lstm"),
            "blocks[0].kind: expected 'gru' or 'ring_",
        ),
        (lambda c: c["encoder"].update(blocks=[]), "encoder.blocks: expected at least one block, got none"),
        (lambda c: c["encoder"].update(blocks=[3]), "encoder.blocks[0]: expected an object, got 3"),
        (lambda c: c["encoder"]["input"].update(end="?"), "encoder.input.end: expected one of the stack's symbols"),
        (lambda c: c["encoder"]["input"].update(symbols=["a", "a"]), "symbols: expected a list of different strings"),
        (
            lambda c: c["decoder"]["blocks"][0].update(hidden=128),
            "expected hidden sizes [256] as the encoder's, got [128]",
        ),
        (lambda c: c.update(format="vkcat/9"), "config.json: format: expected 'vkcat/1', got 'vkcat/9'"),
        (lambda c: c.update(dtype="float64"), "config.json: dtype: expected 'float32' or 'float16' or"),
    ],
)
def test_config(model: Path, change: Callable[[dict[str, Any]], object], message: str) -> None:
    _edit_config(model, change)
    _fails(_run("run", str(model), "a", "--device", "reference"), message)


@pytest.mark.parametrize("text", ["", "{", "[]", "nul\0", "[" * 100_000])
def test_config_that_is_no_object(model: Path, text: str) -> None:
    (model / "config.json").write_text(text)
    _fails(_run("run", str(model), "a", "--device", "reference"), "config.json")


def test_config_round_trip(g2p: Path) -> None:
    config = load_config(g2p)
    assert parse(to_json(config)) == config
    with pytest.raises(ModelError, match="config.json: expected an object, got 3"):
        parse(3)


def test_folder_that_is_not_there(tmp_path: Path) -> None:
    result = _run("run", str(tmp_path / "none"), "a", "--device", "reference")
    _fails(result, "config.json: expected a model's configuration, got no such file; see `vkcat import -h`")


def test_import_does_not_touch_a_foreign_folder(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    _fails(_run("import", "g2p-en", str(tmp_path)), "expected a new or empty folder, or a model's, got something else")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_import_below_a_file_writes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    _fails(_run("import", "g2p-en", str(tmp_path / "file" / "out")), "expected a folder that can be written")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_import_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("vkcat.weights.save_file", broken)
    _fails(_run("import", "g2p-en", str(tmp_path / "out")), "No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_import_twice_replaces_the_model(tmp_path: Path) -> None:
    out = tmp_path / "g2p"
    for _ in range(2):
        assert _run("import", "g2p-en", str(out)).exit_code == 0
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]


def test_report_to_a_folder_that_is_not_there(tmp_path: Path) -> None:
    result = _run("validate", "argmax", "--json", str(tmp_path / "none" / "out.json"))
    _fails(result, "out.json: expected a file that can be written")
    assert list(tmp_path.iterdir()) == []


def test_a_symbol_that_is_half_of_a_character(model: Path) -> None:
    _edit_config(model, lambda c: c["decoder"]["input"]["symbols"].__setitem__(5, "\ud800"))
    _fails(_run("run", str(model), "a", "--device", "reference"), "half of a character")


@pytest.mark.parametrize("symbol", ["a\tb", "", "\n", "\x1b[2J"])
def test_symbols_that_cannot_be_printed(model: Path, symbol: str) -> None:
    _edit_config(model, lambda c: c["decoder"]["input"]["symbols"].__setitem__(5, symbol))
    result = _run("run", str(model), "a", "--device", "reference")
    _fails(result, "decoder.input.symbols: expected printable characters in every symbol")
