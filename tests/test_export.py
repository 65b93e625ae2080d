"""`vkcat export`: torch's names, bit for bit what was imported, and what torch has no module for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from torch_cases import IMPORT_CASES, ImportCase, import_state_dict

from vkcat import presets
from vkcat.cli import cli
from vkcat.config import GruBlock, Stack, StreamConfig, parse
from vkcat.config.stack import ContinuousOutput, FeaturesInput
from vkcat.errors import InputError, ModelError
from vkcat.export import state_dict
from vkcat.weights import save_model

MODULES = {"emb": "embedding", "rnn.gru": "gru", "head": "output"}


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def _saved(config: Any, folder: Path) -> Path:
    model = presets.initial_model(config, 1)
    save_model(folder, model.config, model.weights)
    return folder


@pytest.mark.parametrize("case", IMPORT_CASES, ids=lambda case: case.name)
def test_round_trip(case: ImportCase, tmp_path: Path) -> None:
    """The names are those that tools/make_golden loads strictly into torch's modules, but for the modules' own."""
    given = import_state_dict(case)
    save_file(given, tmp_path / "in.safetensors")
    options = [*(["--embedding", "emb"] if case.symbols else []), *(["--output", "head"] if case.outputs else [])]
    assert _run("import", "torch-gru", tmp_path / "in.safetensors", tmp_path / "model", *options).exit_code == 0
    result = _run("export", tmp_path / "model", tmp_path / "out.safetensors")
    assert result.exit_code == 0, result.output
    out = load_file(tmp_path / "out.safetensors")
    renamed = {
        f"{module}{name.removeprefix(old)}": array
        for name, array in given.items()
        for old, module in MODULES.items()
        if name.startswith(f"{old}.")
    }
    assert len(renamed) == len(given)
    for name, array in renamed.items():
        assert np.array_equal(out[name].view(np.uint32), array.view(np.uint32)), name
    # Without biases, zeros are what torch's modules with biases compute the same with.
    assert all(not out[name].any() and ".bias" in name for name in out.keys() - renamed.keys())
    with safe_open(tmp_path / "out.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
    again = ["--embedding", "embedding"] if case.symbols else []
    again += ["--output", "output"] if case.outputs else []
    assert _run("import", "torch-gru", tmp_path / "out.safetensors", tmp_path / "again", *again).exit_code == 0
    first, second = (load_file(tmp_path / name / "model.safetensors") for name in ("model", "again"))
    assert first.keys() == second.keys()
    assert all(np.array_equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("name", presets.names())
def test_other_models_keep_names_of_a_tree_of_modules(name: str, tmp_path: Path) -> None:
    model = presets.initial_model(presets.preset(name), 0)
    exported = state_dict(model)
    assert exported.keys() == model.weights.keys()
    for one in exported:
        assert not any(other.startswith(f"{one}.") for other in exported), f"{one} is a parameter and a module"
        if one.endswith(".weight_ih"):
            rows = exported[one].shape[0]
            cell = one.removesuffix("weight_ih")
            assert exported[f"{cell}weight_hh"].shape == (rows, rows // 3), "an nn.GRUCell's"
            assert exported[f"{cell}bias_ih"].shape == exported[f"{cell}bias_hh"].shape == (rows,)
        if one.endswith(("norm.weight", "gamma")) or one.startswith("norms."):
            assert exported[one].ndim == 1, "an nn.RMSNorm's"
        if one.endswith(".convolution.weight"):
            assert exported[one].shape == (len(model.weights[one]), 1, 4), "an nn.Conv1d's with groups = channels"
            assert (exported[one][:, 0] == model.weights[one]).all()


def _features(*blocks: GruBlock) -> StreamConfig:
    width = Stack(width=4, blocks=blocks).last_width
    output = ContinuousOutput(size=width, projection=False)
    return StreamConfig(
        "small", Stack(width=4, blocks=blocks, features=FeaturesInput(size=4, projection=False), output=output)
    )


def test_layers_of_several_sizes_are_cells(tmp_path: Path) -> None:
    folder = _saved(_features(GruBlock(hidden=3), GruBlock(hidden=5)), tmp_path / "model")
    assert _run("export", folder, tmp_path / "out.safetensors").exit_code == 0
    assert "blocks.1.weight_ih" in load_file(tmp_path / "out.safetensors")


@pytest.mark.parametrize(
    ("blocks", "parts"),
    [
        ([GruBlock(hidden=3, reset="before")], ["blocks[0].reset", "only one of torch.nn.GRU", "got 'before'"]),
        ([GruBlock(hidden=3, direction="reverse")], ["all forward or all both ways", "got reverse 3"]),
        (
            [GruBlock(hidden=3, direction="both"), GruBlock(hidden=4, direction="both")],
            ["small: blocks: expected blocks of one size", "got both 3, both 4"],
        ),
    ],
)
def test_what_torch_has_no_module_for(blocks: list[GruBlock], parts: list[str], tmp_path: Path) -> None:
    folder = _saved(_features(*blocks), tmp_path / "model")
    result = _run("export", folder, tmp_path / "out.safetensors")
    assert isinstance(result.exception, ModelError), (result.exception, result.output)
    for part in parts:
        assert part in str(result.exception)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_an_encoder_decoder_keeps_its_names(g2p: Path, tmp_path: Path) -> None:
    assert _run("export", g2p, tmp_path / "out.safetensors").exit_code == 0
    assert load_file(tmp_path / "out.safetensors").keys() == load_file(g2p / "model.safetensors").keys()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    folder = _saved(parse(_small()), tmp_path / "model")
    result = _run("export", folder, tmp_path / "none" / "out.safetensors")
    assert isinstance(result.exception, InputError), (result.exception, result.output)
    assert "expected a file that can be written" in str(result.exception)


def _small() -> dict[str, Any]:
    return {
        "format": "vkcat/1",
        "name": "small",
        "width": 3,
        "input": {"kind": "embedding", "symbols": 4},
        "blocks": [{"kind": "gru", "hidden": 3}],
        "output": {"kind": "token"},
    }
