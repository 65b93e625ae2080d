"""Commands as a user runs them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import HAS_KOMPUTE, LAVAPIPE
from msgspec import structs

from vkcat.cli import cli
from vkcat.ops import OPS
from vkcat.schedules import RUNNERS
from vkcat.shader import SOURCES


def _process(*arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "vkcat", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **changes},
        check=False,
        timeout=300,
    )


def _one_line_and_exit_2(done: subprocess.CompletedProcess[str], *parts: str) -> None:
    lines = [line for line in done.stderr.splitlines() if line.startswith("vkcat: error:")]
    assert done.returncode == 2, done
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    for part in parts:
        assert part in lines[0]


def test_no_driver(tmp_path: Path) -> None:
    nothing = str(tmp_path / "none.json")
    for command in (["devices"], ["validate"]):
        done = _process(*command, VK_DRIVER_FILES=nothing, VK_ICD_FILENAMES=nothing)
        _one_line_and_exit_2(done, "no Vulkan driver", "install one")


@pytest.mark.skipif(not HAS_KOMPUTE, reason="kp is not installed")
def test_no_driver_with_kompute(tmp_path: Path) -> None:
    nothing = str(tmp_path / "none.json")
    done = _process("validate", "--backend", "kompute", VK_DRIVER_FILES=nothing, VK_ICD_FILENAMES=nothing)
    _one_line_and_exit_2(done, "no Vulkan driver")


def test_no_kompute() -> None:
    # A module of that name that cannot be imported, ahead of the real one.
    code = (
        "import sys; sys.modules['kp'] = None; sys.argv = ['vkcat', *sys.argv[1:]]; from vkcat.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "validate", "--backend", "kompute"],
        capture_output=True,
        text=True,
        check=False,
    )
    _one_line_and_exit_2(done, "backend kompute: expected the package kp, got none", "docs/backends.md")


def test_no_loader() -> None:
    code = (
        "import sys, ctypes.util, cffi\n"
        "real = cffi.FFI.dlopen\n"
        "import _cffi_backend\n"
        "sys.argv = ['vkcat', 'devices']\n"
        "class Loader:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'vulkan': raise OSError('Cannot find Vulkan SDK version.')\n"
        "sys.meta_path.insert(0, Loader())\n"
        "from vkcat.cli import main; main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    _one_line_and_exit_2(done, "no Vulkan loader", "libvulkan1")


def test_no_such_device() -> None:
    _one_line_and_exit_2(_process("validate", "--device", "GeForce"), "device 'GeForce': expected one of (0: ")
    _one_line_and_exit_2(_process("validate", "--device", "99"), "device '99': expected one of", "0 matches")


def test_devices() -> None:
    done = CliRunner().invoke(cli, ["devices"])
    assert done.exit_code == 0
    for word in ("llvmpipe", "subgroup size", "subgroup arithmetic", "float16", "timestamps", "used: 0"):
        assert word in done.output
    value = json.loads(CliRunner().invoke(cli, ["devices", "--json"]).output)
    assert value["used"] == 0
    assert "first cpu device" in value["reason"] or "only usable" in value["reason"]
    assert value["devices"][0]["limits"]["max_push_constants_size"] >= 128


def test_run_words_and_json(device_name: str, g2p: Path) -> None:
    done = CliRunner().invoke(cli, ["run", str(g2p), "--device", device_name, "hello", "WORLD"])
    assert done.stdout == "hello\tHH EH1 L OW0\nWORLD\tW ER1 L D\n"
    done = CliRunner().invoke(cli, ["run", str(g2p), "--device", device_name, "--json", "hello"])
    assert json.loads(done.stdout) == {"input": "hello", "output": ["HH", "EH1", "L", "OW0"]}


@pytest.mark.parametrize("count", [0, 1, 16, 40])
def test_run_lines_of_standard_input(device_name: str, g2p: Path, count: int) -> None:
    words = [f"{'abcdefgh'[n % 8]}{'aeiou'[n % 5]}n" for n in range(count)]
    done = CliRunner().invoke(
        cli, ["run", str(g2p), "--device", device_name], input="".join(f"{word}\r\n" for word in words)
    )
    assert done.exit_code == 0
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == words
    alone = CliRunner().invoke(cli, ["run", str(g2p), "--device", "reference", *words]) if words else None
    assert alone is None or alone.stdout == done.stdout


def test_run_streams(device_name: str, g2p: Path) -> None:
    """A word typed is answered before the next is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "vkcat", "run", str(g2p), "--device", device_name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    for word in ("first", "second"):
        process.stdin.write(f"{word}\n")
        process.stdin.flush()
        assert process.stdout.readline().startswith(f"{word}\t")
    process.stdin.close()
    process.stdout.close()
    assert process.wait(30) == 0


def test_run_ends_on_a_mistake_while_its_input_stays_open(g2p: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "vkcat", "run", str(g2p), "--device", "reference"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    process.stdin.write(b"hello\n\n")
    process.stdin.flush()
    assert process.wait(30) == 2
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read() == b"hello\tHH EH1 L OW0\n"
    assert process.stderr.read().startswith(b"vkcat: error: line 2: word: expected at least one character")
    for stream in (process.stdin, process.stdout, process.stderr):
        stream.close()


def test_run_into_a_closed_pipe(g2p: Path) -> None:
    command = f"yes hello | head -n 300 | {sys.executable} -m vkcat run {g2p} --device reference | head -n 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stdout == "hello\tHH EH1 L OW0\n"
    assert "Traceback" not in done.stderr


def test_validate_reports(device_name: str, g2p: Path, tmp_path: Path) -> None:
    files = {"json": tmp_path / "v.json", "junit": tmp_path / "v.xml"}
    arguments = ["validate", "argmax", "linear", "--model", str(g2p), "--device", device_name]
    for name, path in files.items():
        arguments += [f"--{name}", str(path)]
    done = CliRunner().invoke(cli, arguments)
    assert done.exit_code == 0, done.output
    value = json.loads(files["json"].read_text())
    assert value["failed"] == 0
    assert value["checked"] == len(value["results"]) > 20
    assert {"gru_cell", "embedding", "argmax", "linear", "model"} == {r["op"] for r in value["results"]}
    suite = ElementTree.parse(files["junit"]).getroot()
    assert int(suite.attrib["tests"]) == value["checked"]
    assert suite.attrib["failures"] == "0"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["v.json", "v.xml"]


def test_validate_a_users_shader(device_name: str, tmp_path: Path) -> None:
    shader = tmp_path / "my.comp"
    text = (SOURCES / "linear.comp").read_text()
    shader.write_text(text)
    done = CliRunner().invoke(cli, ["validate", "--shader", f"linear={shader}", "--device", device_name])
    assert done.exit_code == 0, done.output
    shader.write_text(text.replace("+ bias[n]", ""))
    report = tmp_path / "v.xml"
    done = CliRunner().invoke(
        cli, ["validate", "--shader", f"linear={shader}", "--device", device_name, "--junit", str(report)]
    )
    assert done.exit_code == 1
    assert "failed: linear B1-N1-K1 y: 1 of 1 elements beyond their bound" in done.output
    assert int(ElementTree.parse(report).getroot().attrib["failures"]) > 0


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("x[", "signal[", "linear: bindings: expected 0: reads float32 x"),
        (
            "uint K; }",
            "uint K; uint Z; }",
            "linear: push constants: expected some of ['uint32 B', 'uint32 K', 'uint32 N']",
        ),
        ("void main() {", "void main() { oops", "my.comp: glslangValidator failed"),
        (
            "binding = 3) writeonly",
            "binding = 3, set = 1) writeonly",
            "expected storage buffers in set 0 alone, got 'Y'",
        ),
        (
            "void main() {",
            "layout(binding = 7) uniform sampler2D t; void main() { textureLod(t, vec2(0), 0.0);",
            "got 't'",
        ),
        ("buffer Bias { float bias", "buffer Bias { int bias", "2: reads int32 bias"),
        ("void main() {", "#error \udcff\nvoid main() {", "my.comp: glslangValidator failed"),
        ("+ bias[n]", "+ nothing[n]", "my.comp: glslangValidator failed"),
    ],
)
def test_validate_a_users_shader_of_another_interface(tmp_path: Path, old: str, new: str, message: str) -> None:
    shader = tmp_path / "my.comp"
    text = (SOURCES / "linear.comp").read_text().replace(old, new)
    shader.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = CliRunner().invoke(cli, ["validate", "--shader", f"linear={shader}"])
    assert message in str(done.exception)


def test_a_plain_shader_without_tiles_or_local_size_of_ours(device_name: str, tmp_path: Path) -> None:
    """A shader written from the op's table alone: scalar, one invocation a workgroup."""
    shader = tmp_path / "my.comp"
    shader.write_text(
        "#version 450\n"
        "layout(push_constant) uniform P { uint K; uint N; uint B; };\n"
        "layout(binding = 0) readonly buffer A { float x[]; };\n"
        "layout(binding = 1) readonly buffer C { float w[]; };\n"
        "layout(binding = 2) readonly buffer D { float bias[]; };\n"
        "layout(binding = 3) writeonly buffer E { float y[]; };\n"
        "void main() {\n"
        "  uint n = gl_WorkGroupID.x, b = gl_WorkGroupID.y, pk = (K + 3u) & ~3u, pn = (N + 3u) & ~3u;\n"
        "  float s = bias[n];\n"
        "  for (uint k = 0u; k < K; ++k) s += w[n * pk + k] * x[b * pk + k];\n"
        "  y[b * pn + n] = s;\n"
        "}\n"
    )
    done = CliRunner().invoke(cli, ["validate", "--shader", f"linear={shader}", "--device", device_name])
    assert done.exit_code == 0, done.output


def test_validate_nothing_checked_is_a_failure(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = structs.replace(OPS["argmax"], cases=())
    monkeypatch.setitem(OPS, "argmax", empty)
    done = CliRunner().invoke(cli, ["validate", "argmax", "--device", device_name])
    assert done.exit_code == 1
    assert "0 checked" in done.output


def test_validate_unknown_op() -> None:
    done = CliRunner().invoke(cli, ["validate", "softmax"])
    assert "validate: expected ops of embedding, linear" in str(done.exception)


@pytest.mark.parametrize(
    "backends",
    ["vulkan", pytest.param("vulkan,kompute", marks=pytest.mark.skipif(not HAS_KOMPUTE, reason="kp is not installed"))],
)
def test_profile_json(device_name: str, g2p: Path, tmp_path: Path, backends: str) -> None:
    path = tmp_path / "p.json"
    options = ["--device", device_name, "--backend", backends]
    done = CliRunner().invoke(
        cli,
        ["profile", str(g2p), *options, "--runs", "20", "--warmup", "3", "--json", str(path)],
    )
    assert done.exit_code == 0, (done.output, done.exception)
    assert "3 warm-up steps, 20 measured" in done.output
    value = json.loads(path.read_text())
    assert {"device", "floors", "schedules", "kernels"} <= value.keys()
    assert [floor["backend"] for floor in value["floors"]] == backends.split(",")
    names = [(times["backend"], times["name"]) for times in value["schedules"]]
    assert names == [(b, s) for b in backends.split(",") for s in ("eager", "batched", "replay")]
    for times in value["schedules"]:
        assert times["dispatches_per_step"] == 4
        assert times["submits_per_step"] == (4 if times["name"] == "eager" else 1)
        for key in ("step_us", "kernel_us", "overhead_us", "record_us", "submit_us", "wait_us"):
            if times[key] is None:
                assert times["backend"] == "kompute"
            else:
                assert set(times[key]) == {"median", "p5", "p95"}
        assert times["step_us"]["p5"] <= times["step_us"]["median"] <= times["step_us"]["p95"]
    replay = next(times for times in value["schedules"] if times["name"] == "replay")
    assert replay["record_us"]["median"] == 0
    assert 0 < replay["kernel_us"]["median"] < replay["step_us"]["p95"]
    assert {k["name"] for k in value["kernels"]} == {"embedding", "gru_cell", "linear", "argmax"}
    assert [top["backend"] for top in value["ceilings"]] == ["vulkan"]
    named = [(kernel["name"], kernel["schedule"]) for kernel in value["kernels"]]
    assert [(roof["name"], roof["schedule"]) for roof in value["roofline"]] == named
    for kernel, roof in zip(value["kernels"], value["roofline"], strict=True):
        assert roof["ceiling"] in ("read", "multiply-add", "dispatch")
        operations = 1e3 * roof["gflops"] * kernel["time_us"]["median"]
        assert operations == pytest.approx(kernel["operations_per_step"])
    assert [(one["backend"], one["schedule"]) for one in value["outside"]] == [n for n in names if n[0] == "vulkan"]
    [whole] = value["step_roofline"]
    assert whole["gbytes_per_s"] == pytest.approx(
        1e-3 * value["bytes_per_step"] / value["outside"][0]["device_us"]["median"]
    )
    for one in value["outside"]:
        assert 0 < one["device_us"]["median"] < 5 * replay["step_us"]["median"]
    assert all(len(one["us"]) == 20 for one in value["samples"] if one["schedule"] != "control")
    compared = CliRunner().invoke(cli, ["profile", "--compare", f"{path}:eager", f"{path}:replay"])
    assert compared.exit_code == 0, (compared.output, compared.exception)
    assert "paired" in compared.output


def test_profile_of_an_unknown_schedule(g2p: Path) -> None:
    done = CliRunner().invoke(cli, ["profile", str(g2p), "--schedule", "lazy"])
    assert done.exit_code == 2
    assert "expected some of eager, batched, replay, unrolled, got 'lazy'" in done.output


def test_an_inactive_layer_is_said(g2p: Path) -> None:
    """A layer that is asked for but not installed stops every command with one line."""
    done = _process("devices", VK_INSTANCE_LAYERS="VK_LAYER_KHRONOS_nothing")
    assert "VK_LAYER_KHRONOS_nothing (requested, INACTIVE)" in done.stdout or done.returncode == 2


def test_help_of_every_command_is_short_and_complete() -> None:
    for command in ("devices", "import", "run", "validate", "profile"):
        done = CliRunner().invoke(cli, [command, "-h"])
        assert done.exit_code == 0
        assert len(done.output.splitlines()) < 40


def test_lavapipe_is_found() -> None:
    assert LAVAPIPE, os.listdir("/usr/share/vulkan/icd.d")


def test_a_replaced_op_is_checked_though_others_are_named(device_name: str, tmp_path: Path) -> None:
    shader = tmp_path / "my.comp"
    shader.write_text((SOURCES / "linear.comp").read_text().replace("void main() {", "void main() { return;"))
    done = CliRunner().invoke(cli, ["validate", "argmax", "--device", device_name, "--shader", f"linear={shader}"])
    assert done.exit_code == 1
    assert "elements not written" in done.output
    twice = CliRunner().invoke(cli, ["validate", "--shader", f"linear={shader}", "--shader", f"linear={shader}"])
    assert "--shader linear: expected one file, got another one" in str(twice.exception)


@pytest.mark.parametrize("schedule", ["eager", "replay"])
def test_validate_uses_the_schedule(device_name: str, monkeypatch: pytest.MonkeyPatch, schedule: str) -> None:
    used: list[str] = []
    for name, runner in list(RUNNERS.items()):

        def watched(*arguments: Any, _name: str = name, _runner: Any = runner, **options: Any) -> Any:
            used.append(_name)
            return _runner(*arguments, **options)

        monkeypatch.setitem(RUNNERS, name, watched)
    done = CliRunner().invoke(cli, ["validate", "argmax", "--schedule", schedule, "--device", device_name])
    assert done.exit_code == 0
    assert set(used) == {schedule}


@pytest.mark.parametrize(
    ("redirection", "message"),
    [("<&-", "standard input: expected words"), ("> /dev/full", "writing the output: No space left on device")],
)
def test_run_with_streams_that_fail(g2p: Path, redirection: str, message: str) -> None:
    words = "" if "<" in redirection else "hello"
    command = f"{sys.executable} -m vkcat run {g2p} {words} --device reference {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, timeout=60)
    _one_line_and_exit_2(done, message)
