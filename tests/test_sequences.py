"""Models whose blocks read in reverse or both ways: what runs them, and what is said where they do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import vkcat
from vkcat import presets
from vkcat.cli import cli
from vkcat.config import parse
from vkcat.device.interface import Device
from vkcat.errors import InputError, ModelError, ShapeError, VkcatError
from vkcat.model import build
from vkcat.stored import StoredModel
from vkcat.validate import validate_model
from vkcat.weights import save_model


def _config(directions: list[str], reset: str = "after", **keys: Any) -> dict[str, Any]:
    return {
        "format": "vkcat/1",
        "name": "sequences",
        "width": 5,
        "features": {"size": 3},
        "blocks": [
            {"kind": "gru", "hidden": 4 + at, "direction": direction, "reset": reset}
            for at, direction in enumerate(directions)
        ],
        "output": {"kind": "continuous", "size": 2},
    } | keys


def _model(directions: list[str], **keys: Any) -> StoredModel:
    return presets.initial_model(parse(_config(directions, **keys)), 3)


DIRECTIONS = [["reverse"], ["both"], ["forward", "reverse", "reverse", "both"], ["both", "both", "forward"]]


@pytest.mark.parametrize("reset", ["after", "before"])
@pytest.mark.parametrize("directions", DIRECTIONS, ids="-".join)
def test_layers_are_those_of_gru(directions: list[str], reset: str) -> None:
    """Against `vkcat.gru`, which is checked with torch and ONNX, a layer at a time."""
    model = _model(directions, reset=reset)
    rng = np.random.default_rng(1)
    x, lengths = rng.standard_normal((3, 6, 3)).astype(np.float32), [6, 2, 4]
    w = model.weights
    stream = x @ w["features.weight"].T + w["features.bias"]
    for at, direction in enumerate(directions):
        suffixes = {"forward": [""], "reverse": ["_reverse"], "both": ["", "_reverse"]}[direction]
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        arrays = [[w[f"blocks.{at}.{name}{suffix}"] for suffix in suffixes] for name in names]
        options: dict[str, Any] = {"direction": direction, "reset": reset, "batch_first": True, "device": "reference"}
        stream = vkcat.gru(stream, *arrays, lengths=lengths, **options).y
    expected = stream @ w["output.weight"].T + w["output.bias"]
    expected[np.arange(6)[None] >= np.array(lengths)[:, None]] = 0
    outputs = vkcat.Sequences(model, batch=3, device="reference").run(x, lengths)
    assert np.abs(outputs - expected).max() < 1e-5


@pytest.mark.parametrize("schedule", ["eager", "replay"])
def test_steps_are_valid(device: Device, schedule: str) -> None:
    model = _model(["forward", "reverse", "reverse", "both"])
    results = list(validate_model(device, build(model.config, 3), model.weights, schedule))
    assert len(results) > 20
    assert all(result.passed for result in results), [result for result in results if not result.passed]


def test_a_device_goes_on_after_a_run(vulkan_device: Device) -> None:
    """An odd number of steps leaves states in the other slot; nothing of a run is left to the next."""
    model = _model(["both", "reverse"])
    x = np.random.default_rng(2).standard_normal((2, 7, 3))
    sequences = vkcat.Sequences(model, batch=2, device=vulkan_device)
    first = sequences.run(x)
    sequences.run(-x[:, :3], [3, 0])
    assert np.array_equal(sequences.run(x), first)
    assert np.abs(first - vkcat.Sequences(model, batch=2, device="reference").run(x)).max() < 1e-5
    sequences.close()


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"patches": {"rows": 1, "columns": 1, "side": 1}}, "input or features alone with another direction"),
        ({"input": {"kind": "embedding", "symbols": 3}}, "input or features alone with another direction"),
        ({"norm": "rms"}, "gru blocks, plain depth and no norm with another direction"),
    ],
)
def test_configurations_that_do_not_fit(change: dict[str, Any], part: str) -> None:
    with pytest.raises(ModelError, match=part):
        parse(_config(["both"], **change))


def test_an_encoder_decoder_reads_forward() -> None:
    block = {"kind": "gru", "hidden": 4, "direction": "both"}
    part = {"width": 4, "input": {"kind": "embedding", "symbols": ["a", "b"]}, "blocks": [block]}
    decoder = part | {"output": {"kind": "token", "start": "a", "end": "b"}}
    with pytest.raises(ModelError, match="encoder.blocks: expected the direction forward"):
        parse({"format": "vkcat/1", "name": "x", "encoder": part, "decoder": decoder})


def test_the_wrong_object() -> None:
    with pytest.raises(ModelError, match="expected forward ones in a stream, got another direction; see vkcat.load"):
        vkcat.Session(_model(["both"]), device="reference")
    with pytest.raises(ModelError, match="sequences: expected a model with another direction than forward"):
        vkcat.Sequences(_model(["forward"]), device="reference")


@pytest.mark.parametrize(
    ("x", "lengths", "error", "part"),
    [
        (np.zeros((1, 3, 3)), None, InputError, "features: expected (2, T, 3), got (1, 3, 3)"),
        (np.zeros((2, 3, 4)), None, InputError, "features: expected (2, T, 3), got (2, 3, 4)"),
        (np.zeros((2, 3)), None, InputError, "features: expected (2, T, 3), got (2, 3)"),
        (np.zeros((2, 1, 3), complex), None, InputError, "features: expected numbers, got an array of complex128"),
        ([[1], [1, 2]], None, InputError, "features: expected (2, T, 3), got rows of different lengths; see lengths"),
        (np.zeros((2, 3, 3)), [3], ShapeError, "sequences: lengths: expected integers (2,)"),
        (np.zeros((2, 3, 3)), [3, 4], InputError, "sequences: lengths: expected 0 to 3, got [3, 4]"),
    ],
)
def test_features_that_do_not_fit(x: Any, lengths: Any, error: type[VkcatError], part: str) -> None:
    sequences = vkcat.Sequences(_model(["both"]), batch=2, device="reference")
    with pytest.raises(error) as caught:
        sequences.run(x, lengths)
    assert part in str(caught.value)


def test_tokens_that_do_not_fit() -> None:
    config = _config(["both"], input={"kind": "embedding", "symbols": 3})
    del config["features"]
    sequences = vkcat.Sequences(presets.initial_model(parse(config), 0), device="reference")
    assert sequences.run([0, 1, 2]).shape == (1, 3, 2)
    for x, part in (([3], "0 to 2, got 3"), ([-1], "0 to 2, got -1"), ([0.5], "integers, got an array of float64")):
        with pytest.raises(InputError, match=f"tokens: expected {part}"):
            sequences.run(x)


def test_command_line(device_name: str, tmp_path: Path) -> None:
    model = _model(["both"])
    save_model(tmp_path / "model", model.config, model.weights)
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(cli, [*arguments])

    folder, features = str(tmp_path / "model"), ["--features", str(tmp_path / "x.npy")]
    result = run("run", folder, *features, "--device", "reference")
    assert result.exit_code == 0, result.output
    printed = np.array([[float(number) for number in line.split("\t")] for line in result.stdout.splitlines()])
    assert np.abs(printed - vkcat.Sequences(model, device="reference").run(x)[0]).max() < 1e-6
    for arguments, part in (
        ([], "run: expected --features, got none"),
        (["--prompt", "a"], "run: expected --features, got --prompt"),
        ([*features, "--tokens", "3"], "expected --prompt or --features, as it reads whole sequences, got --tokens"),
        (["word"], "expected --prompt, as it is no encoder-decoder, got the word 'word'"),
    ):
        failed = run("run", folder, *arguments, "--device", "reference")
        assert isinstance(failed.exception, VkcatError)
        assert part in str(failed.exception)
    shown = run("show", folder)
    assert shown.exit_code == 0
    assert "step blocks.0: 2 ops in 2 dispatches" in shown.output
    device = ["--device", device_name]
    profiled = run("profile", folder, "--graph", "blocks.0", "--runs", "2", "--warmup", "0", *device)
    assert profiled.exit_code == 0, profiled.output
    assert "step: blocks.0" in profiled.output
    validated = run("validate", "add", "--model", folder, *device)
    assert validated.exit_code == 0, validated.output
