"""Products are right however they are shared out, and the default fits the device."""

from __future__ import annotations

import pytest

from vkcat.device.interface import Device
from vkcat.kernel import Case, Kernel, untiled
from vkcat.ops import OPS
from vkcat.shader import load
from vkcat.tiling import MOST_LANES, Machine, Tiling, is_possible, of_columns, of_products
from vkcat.validate.ops import validate_case, validate_op


def _has(kernel: Kernel, constant: str) -> bool:
    return constant in load(kernel.name).interface.spec


TILINGS = [
    Tiling(streams=1, rows=1, split=64, lanes=64),
    Tiling(streams=2, rows=2, split=16, lanes=128),
    Tiling(streams=4, rows=1, split=1, lanes=8),
    Tiling(streams=2, rows=4, split=4, lanes=32),
]
CASES = [
    pytest.param(kernel, case, tiling, id=f"{kernel.name}-{case.name}-{'-'.join(map(str, tiling.constants.values()))}")
    for kernel in OPS.values()
    if _has(kernel, "ROWS")
    for case in (*kernel.cases, *(case for case in kernel.every_case[-2:] if case.precision != "float32"))
    for tiling in TILINGS
]


@pytest.mark.long
@pytest.mark.parametrize(("kernel", "case", "tiling"), CASES)
def test_every_tiling(vulkan_device: Device, kernel: Kernel, case: Case, tiling: Tiling) -> None:
    results = validate_case(vulkan_device, kernel, case, tiling=tiling)
    assert [result.problem for result in results if not result.passed] == []


@pytest.mark.parametrize("kernel", [OPS["linear"], OPS["gru_layer"]], ids=lambda kernel: kernel.name)
@pytest.mark.parametrize("tiling", TILINGS, ids=lambda tiling: "-".join(map(str, tiling.constants.values())))
def test_a_tiling(device: Device, kernel: Kernel, tiling: Tiling) -> None:
    results = validate_case(device, kernel, kernel.cases[2], tiling=tiling)
    assert [result.problem for result in results if not result.passed] == []


@pytest.mark.parametrize("lanes", [8, 32, 64, 128])
@pytest.mark.parametrize(
    "kernel",
    [kernel for kernel in OPS.values() if _has(kernel, "LANES") and not _has(kernel, "ROWS")],
    ids=lambda kernel: kernel.name,
)
def test_every_size_of_a_workgroup(vulkan_device: Device, kernel: Kernel, lanes: int) -> None:
    results = list(validate_op(vulkan_device, kernel, tiling=Tiling(lanes=lanes)))
    assert len(results) >= len(kernel.cases)
    assert [result.problem for result in results if not result.passed] == []


@pytest.mark.parametrize("tiling", [Tiling(rows=8, split=2, lanes=16), Tiling(rows=16, split=4, lanes=32)])
@pytest.mark.parametrize("name", ["delta_memory", "delta_sequence"])
def test_several_vec4_of_columns_whose_rows_are_shared(vulkan_device: Device, name: str, tiling: Tiling) -> None:
    results = list(validate_op(vulkan_device, OPS[name], tiling=tiling))
    assert [result.problem for result in results if not result.passed] == []


def test_a_kernel_has_a_tiling_where_its_shader_has_tiles() -> None:
    assert all(_has(kernel, "LANES") == (kernel.tiling is not untiled) for kernel in OPS.values())


@pytest.mark.parametrize("cores", [1, 2, 16])
@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize("outputs", [1, 3, 256, 5000])
@pytest.mark.parametrize("batch", [1, 2, 3, 8, 100])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_default(outputs: int, batch: int, rows: int, cpu: bool, cores: int) -> None:
    tiling = of_products(outputs, batch, rows, Machine(cpu, cores))
    assert min(tiling.constants.values()) >= 1
    assert tiling.streams <= batch
    assert tiling.lanes <= MOST_LANES
    assert tiling.lanes % tiling.split == 0
    assert tiling.split & (tiling.split - 1) == 0
    if cpu and outputs >= 64 * cores:
        assert outputs >= cores * tiling.rows * tiling.lanes, "every core has a workgroup"


@pytest.mark.parametrize("cpu", [True, False])
@pytest.mark.parametrize("columns", [1, 4, 5, 9, 20, 32, 36, 64, 68, 100, 128, 132, 256, 257, 1024])
def test_default_of_columns(columns: int, cpu: bool) -> None:
    tiling = of_columns(columns, Machine(cpu))
    assert is_possible(tiling)
    assert tiling.rows % 4 == 0
    lanes = -(-columns // tiling.rows) * tiling.split
    assert lanes > tiling.lanes // 2 or tiling.rows == 4, "lanes without work would take what others do one by one"
    if not cpu and 5 <= columns <= 256:
        assert lanes >= tiling.lanes // 2


def test_constants_a_shader_does_not_have_count_as_one() -> None:
    assert Tiling(4, 4, 4, 32).limited({"TILE"}) == Tiling(streams=4, lanes=32)
