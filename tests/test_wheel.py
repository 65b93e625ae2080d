"""A wheel in an empty environment, with no GLSL compiler in reach, runs a model."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, plain_environment

from vkcat.ops import OPS


@pytest.mark.long
def test_wheel_runs_a_model_without_a_compiler(tmp_path: Path, g2p: Path) -> None:
    def run(*command: str, **environment: str) -> str:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=plain_environment(**environment), cwd=tmp_path
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    pip = ("-m", "pip", "-q", "--disable-pip-version-check")
    run(sys.executable, *pip, "wheel", "--no-deps", "-w", str(tmp_path), str(ROOT))
    (wheel,) = tmp_path.glob("vkcat-*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {f"vkcat/spirv/{name}.spv" for name in (*OPS, "floor")} <= names
    assert {"vkcat/spirv/index.json", "vkcat/shaders/linear.comp", "vkcat/py.typed"} <= names
    venv.create(tmp_path / "empty", with_pip=True)
    python = str(tmp_path / "empty" / "bin" / "python")
    run(python, *pip, "install", str(wheel))
    path = os.pathsep.join(["/usr/bin", "/bin"])
    found = run(python, "-c", "from vkcat import glsl; print(glsl.find_tool('glslangValidator'))", PATH=path)
    assert found.strip() == "None"
    assert run(python, "-m", "vkcat", "run", str(g2p), "hello", PATH=path) == "hello\tHH EH1 L OW0\n"
    out = run(python, "-m", "vkcat", "validate", "--model", str(g2p), PATH=path)
    assert " 0 failed" in out
