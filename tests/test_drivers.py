"""The tests' own rule: on both drivers and under validation, but for what is named here with its reason."""

from __future__ import annotations

import re

import pytest
from conftest import DRIVERS, ROOT

ALONE = {
    "test_docs.py": "examples say nothing of a device, and take the first",
    "test_mutants.py": "what a seeded fault computes differs from the reference on any driver",
    "test_pipeline_cache.py": "hits, of which SwiftShader alone tells; a home that is not there",
    "test_startup.py": "one start is timed, as the command does it: of the first device",
    "test_trace.py": "the clocks that each driver has; a trace that is then damaged",
    "test_cli.py": "the list of devices has both",
    "test_zz_validation.py": "any device shows that the layer is active",
}
"""Files that name one driver."""
UNWATCHED = {
    "test_bench.py": "it is timed",
    "test_faults_kompute.py": "what kp does after a call that failed is known not to be valid",
    "test_page.py": "a browser uses Vulkan in its own way",
    "test_race.py": "each process has the validation layer, with messages of its own",
    "test_repeats.py": "the validation layer keeps memory of its own",
    "test_startup.py": "it is timed",
    "test_wheel.py": "a command without a device",
}
"""Files that start processes without the validation layer of all."""

TESTS = [path for path in sorted((ROOT / "tests").glob("test_*.py")) if path.name != "test_drivers.py"]


def _uses(pattern: str) -> set[str]:
    return {path.name for path in TESTS if re.search(pattern, path.read_text(), re.MULTILINE)}


def test_only_these_use_one_driver() -> None:
    """By the fixture of one, or by name as an argument."""
    names = "|".join((*DRIVERS, *DRIVERS.values()))
    assert _uses(rf"\b({names}): \w|\((?:[^()\n]*, )?\"({names})\"[,)]") == ALONE.keys()


def test_only_these_run_without_validation() -> None:
    assert _uses(r"plain_environment|VK_INSTANCE_LAYERS=emulation") == UNWATCHED.keys()


@pytest.mark.parametrize("name", [path.name for path in TESTS])
def test_processes_keep_the_drivers_and_layers_of_the_tests(name: str) -> None:
    """Whatever environment a test makes for a process, it adds to this one's."""
    text = (ROOT / "tests" / name).read_text()
    for given in re.findall(r"env=(\S+?)[,)\n]", text):
        assert given.startswith(("environment", "plain_environment(", "{**os.environ")), given
    for made in re.findall(r"environment = (.*)", text):
        assert made.startswith(("plain_environment(", "{**os.environ", "os.environ | ")), made
