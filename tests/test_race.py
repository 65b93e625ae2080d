"""The race that a missing barrier is, and the clean form, under synchronisation validation."""

from __future__ import annotations

import subprocess
import sys

import pytest
from conftest import HAS_KOMPUTE, LAYER, ROOT, plain_environment


@pytest.mark.skipif(not LAYER.is_file(), reason="the validation layer is not installed")
def test_a_dropped_barrier_is_reported_and_the_recorded_form_is_not() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "show_race")],
        env=plain_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == (4 if HAS_KOMPUTE else 2)
    assert all(("silent" in line) == (" clean:" in line) for line in lines)
