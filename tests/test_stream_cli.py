"""init, show and run of models of one stream, on the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from PIL import Image
from stream_models import ALL, CONFIGS, EXPERTS, GRU, config, stored

import vkcat
from vkcat import presets
from vkcat.cli import cli
from vkcat.config import to_json
from vkcat.errors import VkcatError
from vkcat.model import build
from vkcat.summary import costs, part_name
from vkcat.weights import save_model

REFERENCE = ("--device", "reference")


def _run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


def _output(*arguments: str) -> str:
    result = _run(*arguments)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout


@pytest.fixture
def model(tmp_path: Path) -> Path:
    save_model(tmp_path / "all", ALL, stored(ALL).weights)
    return tmp_path / "all"


@pytest.mark.parametrize("name", presets.names())
def test_init_and_show(tmp_path: Path, name: str) -> None:
    line = _output("init", name, str(tmp_path / "m"), "--seed", "3")
    shown = json.loads(_output("show", str(tmp_path / "m"), "--json"))
    assert f"{shown['parameters']:,} parameters" in line
    assert shown["parameters"] == sum(int(np.prod(shape)) for shape in shown["weights"].values())
    again = vkcat.read_model(tmp_path / "m").weights
    assert all(
        (array == presets.initial_model(presets.preset(name), 3).weights[key]).all() for key, array in again.items()
    )
    table = _output("show", str(tmp_path / "m"))
    for step in shown["steps"]:
        assert f"step {step['graph']}: {step['ops']} ops in {step['dispatches']} dispatches" in table


def test_a_seed_gives_the_same_weights_and_another_others() -> None:
    one, same, other = (presets.initial_model(CONFIGS["all"], seed).weights for seed in (1, 1, 2))
    assert all((one[name] == same[name]).all() for name in one)
    assert any((one[name] != other[name]).any() for name in one)


def test_init_of_ones_own_configuration(tmp_path: Path) -> None:
    (tmp_path / "mine.json").write_text(json.dumps(to_json(config([GRU], "plain"))))
    _output("init", str(tmp_path / "mine.json"), str(tmp_path / "m"))
    assert _output("run", str(tmp_path / "m"), "--prompt", "a", "--tokens", "3", "--json", *REFERENCE)


def test_show_counts_chosen_experts_alone(tmp_path: Path) -> None:
    """By hand: a GRU of 21, and 2 of 5 experts of 9 units at width 21."""
    made = config([GRU, {"kind": "experts", "experts": 5, "chosen": 2, "hidden": 9}], "residual")
    built = build(made)
    tokens, generate = costs(built)
    norms, head, router = 3 * 21, 256 * 21 + 256, 5 * 21 + 5
    gru = 3 * 21 * 21 * 2 + 6 * 21
    assert tokens.active == 21 + norms + gru + router + 2 * 3 * 9 * 21 + head
    assert generate.ops == tokens.ops + 1
    assert generate.dispatches == tokens.dispatches, "the draw and the embedding are one"
    experts = next(part for part in tokens.parts if part.name == "blocks.1")
    assert experts.parameters == router + 5 * 3 * 9 * 21
    assert experts.state_bytes == 0
    assert next(part for part in tokens.parts if part.name == "blocks.0").state_bytes == 4 * 21


def test_parts_of_node_names() -> None:
    names = ("encoder.blocks.1.q", "blocks.3", "depth.2", "modulation.film", "decoder.output", "output")
    assert [part_name(name) for name in names] == [
        "encoder.blocks.1", "blocks.3", "depth.2", "modulation", "decoder.output", "output",
    ]  # fmt: skip


def test_run_streams_what_the_session_draws(model: Path) -> None:
    shown = json.loads(_output("run", str(model), "--prompt", "h\u00e9", "--tokens", "9", "--json", *REFERENCE))
    session = vkcat.Session(model, device="reference")
    session.prefill(list("h\u00e9".encode()))
    drawn = session.generate(9)[0].tolist()
    assert shown == {"prompt": "h\u00e9", "tokens": drawn, "text": bytes(drawn).decode("utf-8", "replace")}
    text = _output("run", str(model), "--prompt", "h\u00e9", "--tokens", "9", *REFERENCE)
    assert text == shown["text"] + "\n"


def test_run_on_a_device_draws_as_the_reference(device_name: str, model: Path) -> None:
    options = ("--prompt", "hello", "--tokens", "12", "--temperature", "0.7", "--top-k", "20", "--seed", "9", "--json")
    assert _output("run", str(model), *options, "--device", device_name) == _output(
        "run", str(model), *options, *REFERENCE
    )


def test_run_goes_on_from_its_state(model: Path, tmp_path: Path) -> None:
    def tokens(*options: str) -> list[int]:
        found: list[int] = json.loads(_output("run", str(model), "--json", *options, *REFERENCE))["tokens"]
        return found

    draw = ("--temperature", "1", "--seed", "4")
    whole = tokens("--prompt", "ab", "--tokens", "10", *draw)
    state = ("--state", str(tmp_path / "state"), *draw)
    assert tokens("--prompt", "ab", "--tokens", "4", *state) + tokens("--tokens", "6", *state) == whole


def test_run_reads_an_image_and_vectors(model: Path, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "i.png")
    np.save(tmp_path / "i.npy", pixels)
    np.save(tmp_path / "f.npy", np.random.default_rng(1).standard_normal((4, 5)))
    options = ("--prompt", "a", "--tokens", "8", "--json", *REFERENCE)
    given = [("--image", "i.png"), ("--image", "i.npy"), ("--features", "f.npy")]
    png, array, vectors = (_output("run", str(model), name, str(tmp_path / file), *options) for name, file in given)
    assert png == array != vectors
    assert _output("run", str(model), *options) not in (png, vectors)


def test_run_prints_vectors(tmp_path: Path) -> None:
    made = config([GRU], "plain", input=None, features={"size": 2}, output={"kind": "continuous", "size": 3})
    save_model(tmp_path / "m", made, stored(made).weights)
    x = np.random.default_rng(1).standard_normal((4, 2))
    np.save(tmp_path / "f.npy", x)
    lines = _output("run", str(tmp_path / "m"), "--features", str(tmp_path / "f.npy"), *REFERENCE).splitlines()
    expected = vkcat.Session(tmp_path / "m", device="reference").read_features(x)[0]
    assert np.allclose([[float(number) for number in line.split("\t")] for line in lines], expected, rtol=1e-6)


def test_generation_stops_at_the_end_symbol(tmp_path: Path) -> None:
    symbols = {"kind": "embedding", "symbols": ["a", "b", "."]}
    made = config([GRU], "plain", input=symbols, output={"kind": "token", "end": "."})
    save_model(tmp_path / "m", made, stored(made).weights)
    options = ("--prompt", "ab", "--tokens", "200", "--temperature", "5", "--json", *REFERENCE)
    shown = json.loads(_output("run", str(tmp_path / "m"), *options))
    assert shown["tokens"][-1] == 2
    assert "." not in shown["text"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "run: expected --prompt, --image, --features or a --state that is there, got none of them"),
        (("word",), "expected --prompt, as it is no encoder-decoder, got the word 'word'"),
        (("--prompt", ""), "prompt: expected at least one character, got an empty prompt"),
        (("--image", "none.png"), "none.png: expected an image"),
        (("--image", "none.npy"), "none.npy: expected an .npy file of numbers"),
        (("--prompt", "a", "--top-k", "300"), "top_k: expected 0 to 256, got 300"),
        (("--prompt", "a", "--state", "no/such/folder"), "expected a file that can be written, got no such folder"),
        (("--prompt", "a", "--telemetry", "no/such/folder"), "expected a file that can be written, got no such folder"),
        (("--prompt", "a", "--temperature", "1e-9"), "temperature: expected 0, or 0.0001 to 10000"),
    ],
)
def test_mistakes(model: Path, options: tuple[str, ...], message: str) -> None:
    result = _run("run", str(model), *options, "--tokens", "1", *REFERENCE)
    assert isinstance(result.exception, VkcatError), result.output
    assert message in str(result.exception)


def test_mistakes_with_words(g2p: Path) -> None:
    result = _run("run", str(g2p), "--prompt", "a", "--seed", "1", *REFERENCE)
    assert "expected words, as it is an encoder-decoder, got --prompt, --seed" in str(result.exception)
    assert "expected one of gru-l3," in str(_run("init", "gru-l4", "out").exception)


def test_files_that_are_no_arrays(model: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    header = b"\x93NUMPY\x01\x00\x76\x00"
    shapes = ("(10**12,)", "(999999999999,)", "(99999999999999999999,)", "(4,", "{")
    broken = [
        header + f"{{'descr': '<f4', 'fortran_order': False, 'shape': {s}}}".ljust(117).encode() + b"\n" for s in shapes
    ]
    for content in (b"", b"\x93NUMPY", b"PK\x03\x04", header + b"{".ljust(118), *broken):
        path.write_bytes(content)
        result = _run("run", str(model), "--features", str(path), *REFERENCE)
        assert "x.npy: expected an .npy file of numbers" in str(result.exception)
    objects: Any = np.array([{}, None], dtype=object)
    np.save(path, objects, allow_pickle=True)
    assert "x.npy: expected an .npy file of numbers" in str(_run("run", str(model), "--features", str(path)).exception)


@pytest.mark.parametrize("graph", ["tokens", "generate", "patches"])
def test_profile(device_name: str, model: Path, graph: str) -> None:
    options = ("--graph", graph, "--runs", "3", "--warmup", "1", "--schedule", "replay", "--device", device_name)
    out = _output("profile", str(model), *options)
    assert f"step: {graph}" in out
    assert "bytes" in out


def test_profile_of_a_graph_that_is_not_there(model: Path) -> None:
    result = _run("profile", str(model), "--graph", "decode")
    assert "--graph: expected one of tokens, patches, features, generate, got 'decode'" in str(result.exception)


@pytest.mark.parametrize(
    ("blocks", "more", "message"),
    [
        ([{**GRU, "hidden": 20}], {}, "blocks[0].hidden: expected 21, the width, with depth residual, got 20"),
        ([GRU], {"modulation": {"context": 0}}, "modulation.context: expected the number of a ring_attention block"),
        (
            [{"kind": "experts", "experts": 2, "chosen": 3, "hidden": 1}],
            {},
            "chosen: expected at most 2 experts",
        ),
        (
            [{"kind": "ring_attention", "heads": 3, "groups": 2, "head_width": 1, "window": 1}],
            {},
            "a divisor of 3 heads",
        ),
        ([{"kind": "mlp", "hidden": 1, "activation": "relu"}], {}, "expected 'silu' or 'situ', got 'relu'"),
        ([GRU], {"norm": {"kind": "rms", "eps": 0}}, "eps: expected a number from 1e-12 to 1, got 0"),
        ([GRU], {"norm": {"kind": "rms", "eps": True}}, "eps: expected a number from 1e-12 to 1, got true"),
        ([{**EXPERTS, "capacity": 10**400}], {}, "capacity: expected a number from 0 to 1e+06, got 1000"),
        ([GRU], {"depth": {}}, "depth.kind: expected a value of type str, got no such key"),
        ([GRU], {"norm": False}, "norm: expected an object, got false"),
        ([GRU], {"name": "a\nb"}, "name: expected printable characters, got 'a\\nb'"),
        ([GRU], {"name": "\ud800"}, "name: expected printable characters"),
        ([GRU] * 300, {"depth": "attnres"}, "depth.block: expected one that leaves at most 255 sources of 300 blocks"),
        ([GRU], {"input": None}, "input: expected an input, patches or features, got none of them"),
        ([GRU], {"depth": "deep"}, "depth.kind: expected 'plain' or 'residual' or 'dwa' or 'attnres', got 'deep'"),
        ([GRU], {"input": {"kind": "embedding", "symbols": 0}}, "symbols: expected 1 to 16777216, got 0"),
        ([{**GRU, "direction": "both"}], {}, "expected gru blocks, plain depth and no norm with another direction"),
        ([GRU], {"input": None, "features": {"size": 2}}, "output: expected continuous, as the stack reads no tokens"),
        ([GRU], {"features": {"size": 2, "projection": False}}, "features.size: expected 21, the width, without"),
    ],
)
def test_configurations_that_do_not_go_together(blocks: Any, more: Any, message: str) -> None:
    with pytest.raises(VkcatError) as caught:
        config(blocks, **{"depth": "residual"} | more)
    assert message in str(caught.value)


def test_a_name_with_brackets_is_shown_as_it_is(tmp_path: Path) -> None:
    made = config([GRU], name="[red]a[/x]")
    save_model(tmp_path / "m", made, stored(made).weights)
    assert "[red]a[/x]: " in _output("show", str(tmp_path / "m"))


def test_a_message_is_one_line_whatever_names_hold(tmp_path: Path) -> None:
    (tmp_path / "a\nb").mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "vkcat", "show", str(tmp_path / "a\nb")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "a\\nb" in done.stderr


def test_telemetry_into_a_pipe(model: Path, tmp_path: Path) -> None:
    """What is no regular file is written to, not replaced."""
    os.mkfifo(tmp_path / "pipe")
    command = [sys.executable, "-m", "vkcat", "run", str(model), "--prompt", "a", "--tokens", "2", *REFERENCE]
    process = subprocess.Popen([*command, "--telemetry", str(tmp_path / "pipe")], stdout=subprocess.DEVNULL)
    assert len((tmp_path / "pipe").read_text().splitlines()) == 3
    assert process.wait(60) == 0
    assert (tmp_path / "pipe").is_fifo()


def test_tokens_in_vectors_out(tmp_path: Path) -> None:
    made = config([GRU], "plain", output={"kind": "continuous", "size": 3})
    save_model(tmp_path / "m", made, stored(made).weights)
    line = _output("run", str(tmp_path / "m"), "--prompt", "ab", *REFERENCE)
    expected = vkcat.Session(tmp_path / "m", device="reference").prefill(list(b"ab"))[0]
    assert np.allclose([float(number) for number in line.split("\t")], expected, rtol=1e-6)


def test_help_names_every_shipped_configuration() -> None:
    shown = _output("init", "--help")
    assert all(name in shown for name in presets.names())
