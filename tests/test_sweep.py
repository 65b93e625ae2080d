"""Sizes of a configuration, and how time grows with them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from vkcat.cli import cli
from vkcat.config.blocks import ExpertsBlock, GruBlock, RingAttentionBlock
from vkcat.config.model import StreamConfig
from vkcat.config.stack import Stack
from vkcat.errors import InputError, ModelError
from vkcat.model import build, initial_weights
from vkcat.presets import names, preset
from vkcat.profile.sweep import exponent, parse_axis
from vkcat.profile.vary import width, with_experts, with_hidden, with_layers
from vkcat.weights import save_model


def _stack(config: Any) -> Stack:
    assert isinstance(config, StreamConfig)
    return config.stack


def test_hidden_scales_every_width() -> None:
    stack = _stack(with_hidden(preset("gru-l3"), 64))
    assert stack.width == 64
    assert [block.hidden for block in stack.blocks if isinstance(block, GruBlock)] == [64] * 3
    [attention] = [block for block in stack.blocks if isinstance(block, RingAttentionBlock)]
    assert (attention.heads, attention.head_width, attention.window) == (4, 16, 64)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("hidden", [20, 96])
def test_every_preset_has_other_widths(name: str, hidden: int) -> None:
    config = with_hidden(preset(name), hidden)
    assert width(config) == hidden
    assert build(config).weights.keys() == build(preset(name)).weights.keys()
    assert with_hidden(preset(name), width(preset(name))) == preset(name)


def test_layers_go_round() -> None:
    blocks = _stack(with_layers(preset("gru-l3"), 6)).blocks
    assert blocks == (*_stack(preset("gru-l3")).blocks, *_stack(preset("gru-l3")).blocks[:2])
    with pytest.raises(ModelError, match="modulation.context: expected the number of a ring_attention block"):
        with_layers(preset("gru-l3"), 3)


def test_experts() -> None:
    blocks = _stack(with_experts(preset("gru-l3-experts"), 32)).blocks
    assert [block.experts for block in blocks if isinstance(block, ExpertsBlock)] == [32] * 3
    with pytest.raises(InputError, match="--sweep experts: expected a configuration with experts, got gru-l3"):
        with_experts(preset("gru-l3"), 2)
    with pytest.raises(ModelError, match="chosen: expected at most 1 experts, got 2"):
        with_experts(preset("gru-l3-experts"), 1)


def test_axis() -> None:
    assert parse_axis("hidden=256,64,64") == ("hidden", [64, 256])
    for text in ("hidden", "hidden=64", "hidden=64,64", "hidden=0,1", "hidden=a,b", "window=1,2", "hidden=64,,128"):
        with pytest.raises(InputError, match="--sweep: expected one of hidden, layers, experts, batch, steps"):
            parse_axis(text)


@pytest.mark.parametrize("power", [0.0, 1.0, 1.5])
def test_exponent(power: float) -> None:
    """Noise of 10% a round, and a machine that is at times half as fast for all sizes alike."""
    sizes = np.array([64, 128, 256])
    covered = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        load = np.repeat(rng.choice([1.0, 2.0], 10), 10)[:, None]
        rounds = 3 * sizes**power * load * rng.lognormal(0, 0.1, (100, 3))
        slope, low, high = exponent(np.log(sizes), rounds)
        assert low <= slope <= high < low + 0.2
        assert slope == pytest.approx(power, abs=0.1)
        covered += low <= power <= high
    # 95% is stated: 34 or fewer of 40 have a probability of 1.4% (binomial).
    assert covered >= 35


def _profile(model: Path, device: str, *options: str) -> Any:
    return CliRunner().invoke(
        cli, ["profile", str(model), "--runs", "5", "--warmup", "1", "--device", device, *options]
    )


def test_command(device_name: str, g2p: Path, tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    done = _profile(g2p, device_name, "--sweep", "hidden=128,32", "--schedule", "replay,batched", "--json", str(path))
    assert done.exit_code == 0, (done.output, done.exception)
    value = json.loads(path.read_text())
    assert [(one["schedule"], one["value"]) for one in value["sizes"]] == [
        (schedule, size) for schedule in ("replay", "batched") for size in (32, 128)
    ]
    growth = {(one["schedule"], one["name"]): one for one in value["growth"]}
    assert 1 < growth["replay", "operations"]["exponent"] < 2
    assert set(value["sizes"][0]["us"]) == {"step", "embedding", "gru_cell", "linear", "argmax"}
    assert growth["batched", "step"]["low"] <= growth["batched", "step"]["high"]
    assert "growth with hidden" in done.output


def test_steps_and_batch(device_name: str, tmp_path: Path) -> None:
    config = with_hidden(preset("gru-l3"), 16)
    folder = tmp_path / "tiny"
    save_model(folder, config, _weights(config))
    path = tmp_path / "s.json"
    assert _profile(folder, device_name, "--sweep", "steps=1,4,16", "--json", str(path)).exit_code == 0
    value = json.loads(path.read_text())
    assert [one["value"] for one in value["sizes"]] == [1, 4, 16]
    assert value["sizes"][2]["dispatches"] == 16 * value["sizes"][0]["dispatches"]
    [submission, *counted] = value["growth"]
    assert submission["name"] == "submission"
    assert submission["low"] <= submission["exponent"] <= submission["high"]
    assert [one["exponent"] for one in counted] == pytest.approx([1, 1])
    done = _profile(folder, device_name, "--sweep", "batch=1,3", "--schedule", "replay", "--json", str(path))
    assert done.exit_code == 0, done.output
    sizes = json.loads(path.read_text())["sizes"]
    assert sizes[1]["operations"] == 3 * sizes[0]["operations"]


def _weights(config: Any) -> Any:
    return initial_weights(build(config), 1)


def test_a_kernel_that_some_sizes_lack_has_no_exponent(device_name: str, tmp_path: Path) -> None:
    config = preset("k3-tiny")
    folder = tmp_path / "k3"
    save_model(folder, config, _weights(config))
    done = _profile(folder, device_name, "--sweep", "layers=1,2", "--schedule", "replay", "--graph", "tokens")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "replay moe_expert: not at every size" in done.output


def test_one_thing_at_a_time(device_name: str, g2p: Path) -> None:
    assert "expected --fit or --sweep, got both" in _profile(g2p, device_name, "--fit", "--sweep", "batch=1,2").output
    assert (
        "expected --sweep steps without --schedule"
        in _profile(g2p, device_name, "--sweep", "steps=1,2", "--schedule", "eager").output
    )
    assert (
        "expected --sweep batch without --batch"
        in _profile(g2p, device_name, "--sweep", "batch=1,2", "--batch", "2").output
    )
    assert "expected --fit without --schedule" in _profile(g2p, device_name, "--fit", "--schedule", "eager").output
    done = _profile(g2p, device_name, "--sweep", "batch=1,2", "--backend", "vulkan,kompute")
    assert "--backend: expected one backend with --fit or --sweep" in str(done.exception)
