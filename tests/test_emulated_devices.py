"""Devices we do not have: a driver shown with other properties, which the validation layer then holds vkcat to.

Either vkcat does right there, or it says in a line what does not fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import emulation
import numpy as np
import pytest
from conftest import DRIVERS, HAS_KOMPUTE
from stream_models import CONFIGS, stored

from vkcat.device.backends import open_device
from vkcat.device.interface import Device
from vkcat.errors import DeviceError
from vkcat.kernel import Kernel
from vkcat.ops import OPS
from vkcat.session import Session
from vkcat.validate.ops import validate_case

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
DISCRETE = {"deviceType": 2, "discreteMemory": 1, "subgroupSize": 32, "timestampValidBits": 36, "timestampPeriod": 83.33}
DEVICES: dict[str, dict[str, float]] = {
    "phone": PHONE,
    "discrete": DISCRETE,
    "wave64": {"deviceType": 2, "subgroupSize": 64, "minStorageBufferOffsetAlignment": 16},
    "1 MiB": {"maxStorageBufferRange": 1 << 20, "maxMemoryAllocationSize": 1 << 20},
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


@pytest.fixture(scope="module", params=[f"{d}-{b}-{name}" for d in DRIVERS for b in BACKENDS for name in DEVICES])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    """Every emulated device by every driver and backend."""
    driver, backend, name = request.param.split("-")
    with emulated(backend, driver, **DEVICES[name]) as opened:
        yield opened


def _check(device: Device, kernel: Kernel, cases: Any) -> None:
    for case in cases:
        for result in validate_case(device, kernel, case):
            assert result.passed, result


@pytest.mark.parametrize("name", OPS)
def test_an_op_is_right(device: Device, name: str) -> None:
    """One case of each, another for each op."""
    cases = list(OPS[name].every_case)
    _check(device, OPS[name], cases[len(name) % len(cases) :][:1])


@pytest.mark.long
@pytest.mark.parametrize("name", OPS)
def test_an_op_is_right_in_every_case(device: Device, name: str) -> None:
    _check(device, OPS[name], OPS[name].every_case)


@pytest.mark.parametrize("name", ["gru", "all"])
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
