"""`vkcat doctor`: what it says of a machine, what it must not say, and that it finds what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from msgspec import structs

from vkcat.cli import cli
from vkcat.device.interface import Device
from vkcat.doctor import check_device, checks, surroundings
from vkcat.doctor.private import without_names
from vkcat.errors import DeviceError
from vkcat.ops import OPS
from vkcat.validate.result import Result


def test_a_page_of_a_good_device(vulkan_device: Device, tmp_path: Path) -> None:
    name = vulkan_device.info.name
    done = CliRunner().invoke(cli, ["doctor", "--device", name, "--json", str(tmp_path / "page.json")])
    assert done.exit_code == 0, done.output
    assert f"{len(OPS) + 4} checks, 0 with a problem" in done.output
    assert f"{len(OPS)} of {len(OPS)} ok" in done.output
    page = json.loads((tmp_path / "page.json").read_text())
    assert name in page["checked"]
    assert {check["problem"] for check in page["checks"]} == {""}
    assert page["packages"]["numpy"] == np.__version__
    assert [device["name"] for device in page["devices"]].count(name) == 1


@pytest.mark.long
def test_kompute_is_checked_too(both_backends: list[Device]) -> None:
    for device in both_backends:
        assert [check for check in check_device(device) if check.problem] == []


def test_without_a_driver_it_tells_that(tmp_path: Path) -> None:
    nothing = str(tmp_path / "none.json")
    environment = {**os.environ, "VK_DRIVER_FILES": nothing, "VK_ICD_FILENAMES": nothing}
    command = [sys.executable, "-m", "vkcat", "doctor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "## packages" in done.stdout
    assert "no Vulkan driver: expected one for Vulkan 1.1" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_no_names_of_users_or_homes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = tmp_path / "home" / "wilhelmina"
    home.mkdir(parents=True)
    for name, value in {"HOME": str(home), "USER": "wilhelmina", "LOGNAME": "wilhelmina"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("VKCAT_TILINGS", f"{home}/table.json")
    monkeypatch.setenv("VK_LAYER_PATH", f"{home}/layers:/srv/wilhelmina/layers:/srv/wilhelminas")
    text = json.dumps(msgspec.to_builtins(surroundings()))
    assert str(home) not in text
    assert "wilhelmina/" not in text
    assert "~/table.json" in text
    assert "/srv/USER/layers" in text
    assert "/srv/wilhelminas" in text, "another word that begins alike"


@pytest.mark.parametrize("home", ["", "/"])
def test_a_home_that_tells_nothing_is_left_alone(monkeypatch: pytest.MonkeyPatch, home: str) -> None:
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("USER", "vk")
    assert without_names("/usr/share/vulkan of vk") == "/usr/share/vulkan of vk"


def test_a_damaged_table_is_told_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "table.json").write_text("[")
    monkeypatch.setenv("VKCAT_TILINGS", str(tmp_path / "table.json"))
    assert "expected a table of tilings" in surroundings().kept["tilings"]


def _problems(device: Device) -> dict[str, str]:
    return {check.name: check.problem for check in check_device(device) if check.problem}


def test_memory_that_forgets_is_found(vulkan_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    make = type(vulkan_device).buffer

    def forgetful(self: Any, nbytes: int, memory: Any) -> Any:
        buffer = make(self, nbytes, memory)
        read = buffer.read
        buffer.read = lambda size, offset=0: read(size, offset) & np.uint32(0x7FFFFFFF)
        return buffer

    monkeypatch.setattr(checks, "OPS", {})
    monkeypatch.setattr(type(vulkan_device), "buffer", forgetful)
    found = _problems(vulkan_device)
    assert {"round trip, device", "round trip, upload", "round trip, readback"} <= found.keys()
    assert "words came back otherwise" in found["round trip, upload"]


@pytest.mark.parametrize(
    ("ns", "problem"), [(0.0, "took no time, or less"), (-5.0, "took no time"), (1e12, "longer than the host waited")]
)
def test_timestamps_that_cannot_be_are_found(
    vulkan_device: Device, monkeypatch: pytest.MonkeyPatch, ns: float, problem: str
) -> None:
    monkeypatch.setattr(checks, "OPS", {})
    monkeypatch.setattr(checks.Executor, "timed_step", lambda self, graph: [ns])
    assert problem in _problems(vulkan_device)["timestamps"]


def test_a_wrong_op_and_one_that_fails_are_found(vulkan_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def validate(device: Device, kernel: Any, case: Any) -> list[Result]:
        if kernel.name == "silu":
            raise DeviceError("silu: expected a pipeline, got none")
        return list(checks_of(device, kernel, case)) if kernel.name == "add" else []

    def checks_of(device: Device, kernel: Any, case: Any) -> list[Result]:
        results = original(device, kernel, case)
        return [structs.replace(result, problem="4 elements beyond their bound") for result in results]

    original = checks.validate_case
    monkeypatch.setattr(checks, "validate_case", validate)
    found = _problems(vulkan_device)
    assert found.keys() == {"op silu", "op add"}
    assert found["op silu"] == "silu: expected a pipeline, got none"
    assert "4 elements beyond their bound" in found["op add"]
