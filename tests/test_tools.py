"""The tools start with any Python: what they need is in .venv, and they go there by themselves."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, TOOLS, absent

SCRIPTS = [path for path in sorted(TOOLS.iterdir()) if path.is_file() and not path.suffix]
NEEDY = [path.name for path in SCRIPTS if "\nimport activate " in path.read_text(encoding="utf-8")]


def _started(tools: Path, name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-S", str(tools / name), "-h"], cwd="/", capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("name", NEEDY)
def test_a_tool_finds_its_environment(name: str) -> None:
    if not (ROOT / ".venv").is_dir():
        absent(".venv")
    done = _started(TOOLS, name)
    assert done.returncode == 0, done.stderr


def test_a_tool_says_where_its_environment_comes_from(tmp_path: Path) -> None:
    shutil.copytree(TOOLS, tmp_path / "tools")
    done = _started(tmp_path / "tools", "bench")
    assert done.returncode == 2
    assert done.stderr == "bench: error: expected vkcat in .venv, got none; tools/setup\n"


def test_whatever_needs_the_environment_goes_there() -> None:
    needs = [
        path.name
        for path in SCRIPTS
        if path.read_text(encoding="utf-8").startswith("#!/usr/bin/env python3")
        and "\nfrom vkcat" in path.read_text(encoding="utf-8")
    ]
    assert set(needs) <= set(NEEDY)
    assert len(NEEDY) == 5
