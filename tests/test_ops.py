"""Every case of every op, on every driver, by every backend."""

from __future__ import annotations

import pytest

from vkcat.device.interface import Device
from vkcat.kernel import Case, Kernel, check_interface
from vkcat.ops import OPS
from vkcat.shader import load
from vkcat.validate.ops import validate_case

CASES = [
    pytest.param(kernel, case, id=f"{kernel.name}-{case.name}") for kernel in OPS.values() for case in kernel.cases
]


@pytest.mark.parametrize(("kernel", "case"), CASES)
def test_case(device: Device, kernel: Kernel, case: Case) -> None:
    results = validate_case(device, kernel, case)
    assert [result.tensor for result in results] == list(kernel.written)
    assert [result.problem for result in results if not result.passed] == []


@pytest.mark.parametrize("kernel", OPS.values(), ids=OPS)
def test_interface_is_the_kernels(kernel: Kernel) -> None:
    check_interface(kernel, load(kernel.name))


@pytest.mark.parametrize("kernel", OPS.values(), ids=OPS)
def test_cases_have_awkward_sizes(kernel: Kernel) -> None:
    lengths = {length for case in kernel.cases for length in case.sizes.values()}
    assert {1, 3, 63, 100, 257} <= lengths
