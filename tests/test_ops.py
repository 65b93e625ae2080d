"""Every case of every op, on every driver, by every backend."""

from __future__ import annotations

import pytest

from vkcat.config import blocks
from vkcat.config.model import DTYPES
from vkcat.device.interface import Device
from vkcat.glsl import PACKED, SUBGROUP, variants
from vkcat.kernel import PRECISIONS, Case, Kernel, check_interface
from vkcat.ops import OPS, delta_memory, depth_attnres, moe_expert, moe_route, ring_attention
from vkcat.shader import SOURCES, exists, load
from vkcat.validate.ops import case_shader, validate_case

CASES = [
    pytest.param(kernel, case, id=f"{kernel.name}-{case.name}") for kernel in OPS.values() for case in kernel.every_case
]


@pytest.mark.parametrize(("kernel", "case"), CASES)
def test_case(device: Device, kernel: Kernel, case: Case) -> None:
    results = validate_case(device, kernel, case)
    assert [result.tensor for result in results] == list(kernel.written)
    assert [result.problem for result in results if not result.passed] == []


WITHOUT_SUBGROUPS = [param for param in CASES if exists(f"{case_shader(*param.values)}{SUBGROUP}")]


@pytest.mark.parametrize(("kernel", "case"), WITHOUT_SUBGROUPS)
def test_case_without_subgroups(vulkan_device: Device, kernel: Kernel, case: Case) -> None:
    """In shared memory, where `test_case` runs what these devices choose."""
    name = case_shader(kernel, case)
    results = validate_case(vulkan_device, kernel, case, {name: load(name)})
    assert [result.problem for result in results if not result.passed] == []


@pytest.mark.parametrize("kernel", OPS.values(), ids=OPS)
def test_interface_is_the_kernels(kernel: Kernel) -> None:
    for plain in {case_shader(kernel, case) for case in kernel.every_case}:
        for name in filter(exists, (plain, f"{plain}{SUBGROUP}")):
            check_interface(kernel, load(name))


def test_precisions_of_configurations_are_the_kernels() -> None:
    assert DTYPES == PRECISIONS
    assert {f".{precision}" for precision in PRECISIONS[1:]} == set(PACKED)


def test_limits_of_configurations_are_the_kernels() -> None:
    assert blocks.MOST_CHOSEN == moe_route.MOST
    assert blocks.MOST_SOURCES == depth_attnres.MOST
    assert blocks.WIDEST_HEAD == ring_attention.WIDEST == delta_memory.WIDEST
    assert blocks.WIDEST_EXPERT == moe_expert.WIDEST


def test_packed_matrices_are_those_the_shaders_unpack() -> None:
    assert {name for name, kernel in OPS.items() if kernel.packed} == {
        path.stem for path in SOURCES.glob("*.comp") if PACKED[0] in variants(path, SOURCES / "include")
    }


@pytest.mark.parametrize("kernel", OPS.values(), ids=OPS)
def test_cases_have_awkward_sizes(kernel: Kernel) -> None:
    lengths = {length for case in kernel.cases for length in case.sizes.values()}
    assert {1, 3, 63, 100, 257} <= lengths
