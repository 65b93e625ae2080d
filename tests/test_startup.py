"""What a start is made of: imports that are not there, stages that are told apart, pipelines that are made once."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from conftest import TOOLS, load_tool, plain_environment

from vkcat.cli import COMMANDS, cli
from vkcat.device.backends import open_device
from vkcat.session import Session

HEAVY = ("rich", "onnx", "subprocess", "concurrent", "logging", "kp", "vulkan")
OTHERS = ("vkcat.importers", "vkcat.validate", "vkcat.profile", "vkcat.export", "vkcat.device.kompute")


def _modules(code: str) -> set[str]:
    """Names of the modules that a process has imported after running some code."""
    shown = f"{code}\nimport sys; print(*sorted(sys.modules), sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", shown], env=plain_environment(), capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines())


@pytest.mark.parametrize("kind", ["stream", "words"])
def test_running_a_model_imports_nothing_of_other_commands(kind: str) -> None:
    brought = _modules("import numpy, safetensors.numpy, click, queue")
    found = _modules(f"import vkcat.cli.run, vkcat.cli.{kind}") - brought
    assert not [name for name in found if name.split(".")[0] in HEAVY or name.startswith(OTHERS)]


def test_every_command_is_found_where_the_list_says() -> None:
    for name in COMMANDS:
        done = CliRunner().invoke(cli, [name, "-h"])
        assert done.exit_code == 0
        assert done.output.startswith(f"Usage: cli {name} ")
    assert "No such command 'walk'" in CliRunner().invoke(cli, ["walk"]).output


def test_stages_are_told_apart() -> None:
    """What one does within another counts once."""
    stages = load_tool("startup").Stages()
    inner = stages.timed("inner", lambda: time.sleep(0.02))

    def both() -> None:
        inner()
        time.sleep(0.01)
        inner()

    begin = time.perf_counter()
    stages.timed("outer", both)()
    whole = 1e3 * (time.perf_counter() - begin)
    assert list(stages.spent) == ["inner", "outer"]
    assert stages.spent["inner"] >= 40
    assert 10 <= stages.spent["outer"] <= whole - stages.spent["inner"]


def test_the_stages_of_a_start(tmp_path: Path) -> None:
    model = tmp_path / "model"
    assert CliRunner().invoke(cli, ["init", "gru-l3", str(model), "--seed", "1"]).exit_code == 0
    command = [sys.executable, str(TOOLS / "startup"), str(model)]
    environment = plain_environment()
    began = time.perf_counter()
    done = subprocess.run(
        [*command, "--began", repr(began)], env=environment, capture_output=True, text=True, check=True
    )
    whole = 1e3 * (time.perf_counter() - began)
    told = json.loads(done.stdout)
    stages = told["stages"]
    assert min(stages.values()) >= 0
    assert sum(stages.values()) <= whole
    ours = ("import vkcat", "read the model", "write weights", "pipelines, after that", "first step")
    for name in ("import numpy", "driver: instance", *ours):
        assert stages[name] > 0
    device: Any = open_device("vulkan", "llvmpipe")
    Session(str(model), device=device).close()
    made = device.pipeline_counts[0]
    device.close()
    # lavapipe's part of the cache is empty: see docs/backends.md.
    assert told["pipelines"] == [made, 0]
    printed = subprocess.run([*command, "--runs", "1"], env=environment, capture_output=True, text=True, check=True)
    assert "of vkcat, to the first submit" in printed.stdout
    assert f"later: {made} pipelines, 0 of them from the cache on disk" in printed.stdout
