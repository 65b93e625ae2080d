"""Devices we do not have: a driver shown with other properties, which the validation layer then holds vkcat to.

Either vkcat does right there, or it says in a line what does not fit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import emulation
import numpy as np
import pytest
from conftest import DRIVERS, HAS_KOMPUTE, load_tool
from stream_models import CONFIGS, config, stored

from vkcat.device.backends import open_device
from vkcat.device.interface import Device
from vkcat.errors import DeviceError
from vkcat.executor import Executor
from vkcat.kernel import Kernel
from vkcat.model import build_stream
from vkcat.ops import OPS
from vkcat.session import Session
from vkcat.validate.ops import validate_case
from vkcat.weights import save_model

PHONE = {
    "maxComputeWorkGroupInvocations": 128,
    "maxComputeSharedMemorySize": 16 << 10,
    "maxComputeWorkGroupCount": 65_535,
    "maxPerStageDescriptorStorageBuffers": 16,
    "maxStorageBufferRange": 128 << 20,
    "minStorageBufferOffsetAlignment": 256,
    "shaderFloat16": 0,
    "subgroupArithmetic": 0,
    "timestampValidBits": 0,
    "deviceType": 1,
}
DISCRETE = {
    "deviceType": 2,
    "discreteMemory": 1,
    "subgroupSize": 32,
    "timestampValidBits": 36,
    "timestampPeriod": 83.33,
}
DEVICES: dict[str, dict[str, float]] = {
    "phone": PHONE,
    "discrete": DISCRETE,
    "wave64": {"deviceType": 2, "subgroupSize": 64, "minStorageBufferOffsetAlignment": 16},
    "1 MiB": {"maxStorageBufferRange": 1 << 20},
}
BACKENDS = ["vulkan", *(["kompute"] if HAS_KOMPUTE else [])]


@contextmanager
def emulated(backend: str, driver: str, **properties: float) -> Iterator[Device]:
    """A driver that says these properties of itself."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in emulation.variables(**properties).items():
            patch.setenv(name, value)
        device = open_device(backend, DRIVERS[driver])
        try:
            yield device
        finally:
            device.close()


WAYS = [f"{driver}-{backend}-{name}" for driver in DRIVERS for backend in BACKENDS for name in DEVICES]
"""Every emulated device by every driver and backend."""


@pytest.fixture(scope="module", params=WAYS)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    driver, backend, name = request.param.split("-")
    with emulated(backend, driver, **DEVICES[name]) as opened:
        yield opened


def _check(device: Device, kernel: Kernel, cases: Any) -> None:
    for case in cases:
        for result in validate_case(device, kernel, case):
            assert result.passed, result


def _dealt() -> list[tuple[str, str]]:
    """Each op on one of the devices by each driver and backend, another for the next op."""
    ways, each = sorted(WAYS), len(DEVICES)
    return [(ways[first + at % each], name) for first in range(0, len(ways), each) for at, name in enumerate(OPS)]


@pytest.mark.parametrize(("device", "name"), sorted(_dealt()), indirect=["device"])
def test_an_op_is_right(device: Device, name: str) -> None:
    """In one case, another for each op."""
    cases = list(OPS[name].every_case)
    _check(device, OPS[name], cases[len(name) % len(cases) :][:1])


@pytest.mark.long
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("device", [way for way in WAYS if "vulkan" in way], indirect=True)
def test_an_op_is_right_in_every_case(device: Device, name: str) -> None:
    _check(device, OPS[name], OPS[name].every_case)


@pytest.mark.parametrize("name", ["gru", pytest.param("all", marks=pytest.mark.long)])
def test_a_model_reads_and_generates_what_the_reference_does(device: Device, name: str, tmp_path: Path) -> None:
    """Steps and pieces, sampling, and a state that is saved and loaded."""
    model, tokens = stored(CONFIGS[name]), np.arange(2 * 11).reshape(2, 11) * 23 % 256
    drawn, outputs = [], []
    for where in (device, "reference"):
        session = Session(model, batch=2, device=where)
        session.prefill(tokens[:, :10])
        session.save_state(tmp_path / "state")
        session.reset()
        session.load_state(tmp_path / "state")
        outputs.append(session.step(tokens[:, 10]))
        drawn.append(session.generate(5))
        session.close()
    np.testing.assert_allclose(outputs[0], outputs[1], rtol=2e-4, atol=2e-4)
    np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize("most", [4, 8, 9])
@pytest.mark.parametrize("driver", list(DRIVERS))
def test_few_storage_buffers(driver: str, most: int) -> None:
    """An op that binds more is refused by name; all others are right, and prefill goes step by step if it must."""
    with emulated("vulkan", driver, maxPerStageDescriptorStorageBuffers=most) as device:
        for kernel in OPS.values():
            if len(kernel.shapes) <= most:
                _check(device, kernel, kernel.every_case[:1] if most == 4 else ())
            else:
                with pytest.raises(DeviceError, match=f"{kernel.name}.*: expected at most {most} storage buffers"):
                    _check(device, kernel, kernel.every_case[:1])
        if most == 9:
            for name in ("ring", "delta"):
                outputs = []
                for where in (device, "reference"):
                    session = Session(stored(CONFIGS[name]), device=where)
                    outputs.append(session.prefill(list(range(20))))
                    session.close()
                np.testing.assert_allclose(outputs[0], outputs[1], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("driver", list(DRIVERS))
def test_a_tensor_beyond_the_range_is_refused_before_it_is_made(driver: str, backend: str) -> None:
    wide = config([{"kind": "mlp", "hidden": 4096, "activation": "silu"}], norm="none", width=96)
    with (
        emulated(backend, driver, maxStorageBufferRange=1 << 20) as device,
        pytest.raises(DeviceError, match="at most 1048576 bytes"),
    ):
        Session(stored(wide), device=device)


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_more_groups_than_the_device_has_are_refused(driver: str) -> None:
    case = max(OPS["add"].every_case, key=lambda case: case.sizes["D"] * case.sizes["B"])
    with (
        emulated("vulkan", driver, maxComputeWorkGroupCount=2) as device,
        pytest.raises(DeviceError, match="expected 1 to 2 workgroups along x, got"),
    ):
        validate_case(device, OPS["add"], case)


def _profile(driver: str, tmp_path: Path, **properties: float) -> tuple[str, dict[str, Any]]:
    """What `vkcat profile` prints of a device with these properties, and its JSON."""
    folder, report = tmp_path / "model", tmp_path / "report.json"
    save_model(folder, CONFIGS["gru"], stored(CONFIGS["gru"]).weights)
    command = [sys.executable, "-m", "vkcat", "profile", str(folder), "--device", DRIVERS[driver], "--runs", "20"]
    done = subprocess.run(
        [*command, "--schedule", "replay", "--json", str(report)],
        env={**os.environ, **emulation.variables(**properties)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads(report.read_text())


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_a_profile_without_timestamps_says_so(driver: str, tmp_path: Path) -> None:
    text, report = _profile(driver, tmp_path, timestampValidBits=0)
    assert "timestamps" in text
    (replay,) = report["schedules"]
    assert replay["kernel_us"] is None


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_a_counter_of_36_bits_that_wraps(driver: str) -> None:
    """It wraps some milliseconds after its first use; no time is negative, or a turn of the counter."""
    with emulated("vulkan", driver, timestampValidBits=36, timestampPeriod=83.33, timestampsUntilWrap=100) as device:
        assert (device.info.timestamp_bits, round(device.info.timestamp_period, 2)) == (36, 83.33)
        times = []
        model = stored(CONFIGS["gru"])
        graph = build_stream(model.config, 1).graphs["tokens"]
        executor = Executor(device, [graph], timestamps=True)
        for _ in range(60):
            times += executor.timed_step("tokens")
        executor.close()
        assert min(times) >= 0
        # A turn is 5.7e12 ns.
        assert max(times) < 1e9
        assert sum(times) > 0


@pytest.mark.parametrize("driver", list(DRIVERS))
def test_the_validation_layer_holds_to_what_is_shown(driver: str) -> None:
    """Offsets that the driver takes and the emulated device does not, in a process of their own."""
    code = (
        "import emulation\n"
        "from msgspec.structs import replace\n"
        "from vkcat.device.backends import open_device\n"
        "from vkcat.executor import Executor, device_packing\n"
        "from vkcat.model import build_stream\n"
        "from stream_models import CONFIGS\n"
        f"device = open_device('vulkan', {DRIVERS[driver]!r})\n"
        "packing = replace(device_packing(device), alignment=64)\n"
        "graph = build_stream(CONFIGS['gru'], 1).graphs['tokens']\n"
        "Executor(device, [graph], packing=packing).close()\n"
        "device.close()\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        messages = load_tool("with_validation").Messages(Path(folder))
        environment = {**os.environ, **emulation.variables(minStorageBufferOffsetAlignment=1024), **messages.variables}
        environment["VK_INSTANCE_LAYERS"] = emulation.variables(deviceType=2)["VK_INSTANCE_LAYERS"]
        try:
            subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, env=environment, check=True)
            assert "minStorageBufferOffsetAlignment 0x400" in messages.text()
        finally:
            messages.close()
