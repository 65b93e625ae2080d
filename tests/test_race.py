"""The race that a missing barrier is, and the clean form, under synchronisation validation."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import HAS_KOMPUTE, LAYER, TOOLS, load_tool, plain_environment


@pytest.mark.skipif(not LAYER.is_file(), reason="the validation layer is not installed")
def test_a_dropped_barrier_is_reported_and_the_recorded_form_is_not() -> None:
    done = subprocess.run(
        [sys.executable, str(TOOLS / "show_race")],
        env=plain_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == (4 if HAS_KOMPUTE else 2)
    assert all(("silent" in line) == (" clean:" in line) for line in lines)


@pytest.mark.skipif(not LAYER.is_file(), reason="the validation layer is not installed")
def test_messages_of_an_earlier_instance_are_kept(tmp_path: Path) -> None:
    """The layer empties its log whenever an instance is made; what it said before must not be lost."""
    messages = load_tool("with_validation").Messages(tmp_path)
    try:
        code = (
            f"import runpy; chain = runpy.run_path({str(TOOLS / 'show_race')!r})['chain']\n"
            "from vkcat.device import vulkan\n"
            "chain('vulkan', 'race'); vulkan.devices(); vulkan.devices()\n"
        )
        environment = plain_environment(**messages.variables, PYTHONPATH=str(TOOLS))
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        assert "SYNC-HAZARD-READ-AFTER-WRITE" in messages.text()
    finally:
        messages.close()
