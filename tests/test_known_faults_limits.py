"""The limit and the limit plus one: of devices, of shaders, and of what 32 bits can index.

Met publicly: 512 invocations on a device of 256 (ollama/ollama#15877), more than 65,535 workgroups
(ggml-org/llama.cpp#19965), expert weights beyond a 32-bit offset (ROCm/aiter#4343).
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import pytest
from msgspec import structs

from vkcat.device.interface import Device, DeviceInfo, Limits, Slice
from vkcat.device.limits import check_dispatch, check_shader
from vkcat.errors import DeviceError, ShapeError, VkcatError
from vkcat.executor import Executor, device_packing
from vkcat.graph import Graph, Role, Tensor
from vkcat.kernel import Case
from vkcat.ops import OPS
from vkcat.plan import Packing, schedule
from vkcat.plan.layout import MAX_BINDING
from vkcat.shader import SOURCES, Shader, load, load_file
from vkcat.validate.ops import validate_case, validate_op

LARGE = Limits(MAX_BINDING, 1 << 62, 16, (65535,) * 3, (128, 128, 64), 128, 16 << 10, 128, 16)


def _table(rows: int, width: int = 1) -> Graph:
    """One row of a table; a table of one column has 16 bytes a row, as rows are padded."""
    graph = Graph("g")
    ids = Tensor("ids", (1,), "uint32", Role.INPUT)
    table = Tensor("table", (rows, width), "float32", Role.WEIGHT)
    graph.output(graph.add("embedding", "e", ids=ids, table=table)[0])
    return graph


def _planned(limits: Limits, graph: Graph) -> None:
    device: Any = SimpleNamespace(info=_info(limits), offsets=True)
    plan = schedule([graph], device_packing(device))
    for step in plan.steps["g"]:
        for dispatch in step.dispatches:
            assert all(region.offset % limits.min_storage_buffer_offset_alignment == 0 for region in dispatch.regions)


def _info(limits: Limits) -> DeviceInfo:
    return DeviceInfo(0, "Test", "discrete", (1, 1, 0), "none", 32, False, False, 64, 1.0, 0, limits)


def _checked(limits: Limits, groups: tuple[int, int, int] = (1, 1, 1), size: int = 16) -> None:
    """All that is checked of argmax: 64 x 1 x 1 invocations, 512 bytes shared and 8 pushed, two buffers."""
    shader, info = load("argmax"), _info(limits)
    check_shader(shader, (64,), info)
    slices: Any = [Slice(SimpleNamespace(nbytes=size), 0, size)] * 2  # type: ignore[arg-type]
    check_dispatch("argmax", shader, slices, np.zeros(2, np.uint32), groups, info)


AT_THE_LIMIT: dict[str, tuple[Any, Any]] = {
    "max_storage_buffer_range": (4096, lambda limits: _planned(limits, _table(256))),
    "max_memory_allocation_size": (4096, lambda limits: _planned(limits, _table(256))),
    "max_compute_work_group_count": ((3, 4, 5), lambda limits: _checked(limits, (3, 4, 5))),
    "max_compute_work_group_size": ((64, 1, 1), _checked),
    "max_compute_work_group_invocations": (64, _checked),
    "max_compute_shared_memory_size": (512, _checked),
    "max_push_constants_size": (8, _checked),
    "max_per_stage_descriptor_storage_buffers": (2, _checked),
}


def _one_less(limit: Any) -> list[Any]:
    if isinstance(limit, int):
        return [limit - 1]
    return [tuple(n - (i == at) for i, n in enumerate(limit)) for at in range(len(limit))]


@pytest.mark.parametrize("name", AT_THE_LIMIT)
def test_what_is_at_a_limit_is_taken_and_one_more_is_not(name: str) -> None:
    limit, use = AT_THE_LIMIT[name]
    use(structs.replace(LARGE, **{name: limit}))
    for less in _one_less(limit):
        with pytest.raises(DeviceError):
            use(structs.replace(LARGE, **{name: less}))


def test_every_limit_is_tested() -> None:
    """An alignment is no limit: `_planned` looks at what comes of it."""
    names = {field.name for field in structs.fields(Limits)}
    assert names - AT_THE_LIMIT.keys() == {"min_storage_buffer_offset_alignment"}
    _planned(structs.replace(LARGE, min_storage_buffer_offset_alignment=256), _table(3))


def test_a_range_at_the_limit_of_a_dispatch() -> None:
    limits = structs.replace(LARGE, max_storage_buffer_range=4096)
    _checked(limits, size=4096)
    with pytest.raises(DeviceError, match="argmax: x: expected at most 4096 bytes .maxStorageBufferRange of Test"):
        _checked(limits, size=4100)


@pytest.mark.parametrize(
    ("op", "sizes", "beyond"),
    [
        ("moe_route", {"B": 3, "E": 40, "S": 16}, {"S": 17}),
        ("moe_expert", {"B": 1, "S": 1, "E": 2, "D": 5, "M": 2048}, {"M": 2049}),
        ("ring_attention", {"B": 1, "W": 3, "C": 1024, "Q": 1024, "N": 1}, {"C": 1025, "Q": 1025}),
        ("ring_step", {"B": 1, "W": 3, "D": 5, "C": 512, "Q": 1024, "N": 2}, {"C": 513, "Q": 1026}),
        ("delta_memory", {"B": 1, "R": 1024, "P": 3, "V": 3, "N": 1}, {"R": 1025}),
        ("gru_sequence", {"B": 1, "R": 2, "H": 1536}, {"H": 1537}),
        ("depth_attnres", {"B": 1, "D": 5, "O": 5, "J": 256}, {"J": 257}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_fits_a_shaders_arrays_is_right_and_one_more_is_refused(
    vulkan_device: Device, op: str, sizes: dict[str, int], beyond: dict[str, int]
) -> None:
    kernel = OPS[op]
    first = kernel.cases[1]
    attributes = {**first.attributes, **({"at": sizes["J"] - 1} if "at" in first.attributes else {})}
    results = validate_case(vulkan_device, kernel, Case(sizes, attributes=attributes))
    assert [result.problem for result in results if not result.passed] == []
    with pytest.raises(ShapeError, match="at most|1 to 16"):
        validate_case(vulkan_device, kernel, Case(sizes | beyond, attributes=attributes))


WIDE_GROUPS = "layout(local_size_x = 512) in;"


def _add_of(folder: Path, local_size: str) -> dict[str, Shader]:
    """`add` by workgroups of another size."""
    text = (SOURCES / "add.comp").read_text()
    assert text.count("layout(local_size_x = 64) in;") == 1
    file = folder / "add.comp"
    file.write_text(text.replace("layout(local_size_x = 64) in;", local_size))
    return {"add": load_file("add", file)}


def test_groups_of_512_run_where_a_device_has_them_and_are_refused_where_not(device: Device, tmp_path: Path) -> None:
    """lavapipe has 1024 invocations, SwiftShader 256; each by both backends, before a driver sees the shader."""
    most = device.info.limits.max_compute_work_group_invocations
    shaders = _add_of(tmp_path, WIDE_GROUPS)
    if most >= 512:
        assert all(result.passed for result in validate_op(device, OPS["add"], shaders))
    else:
        assert most == 256
        with pytest.raises(
            DeviceError, match="add: SwiftShader.*: expected at most 256 invocations a workgroup, got 512"
        ):
            list(validate_op(device, OPS["add"], shaders))
    shaders = _add_of(tmp_path, f"layout(local_size_x = {most}) in;")
    assert all(result.passed for result in validate_op(device, OPS["add"], shaders))


MOST_GROUPS = 65_535


def test_as_many_workgroups_as_there_are_are_all_run_and_one_more_is_refused(device: Device) -> None:
    """Along y, of which every device has 65,535 here: the last row is read and written."""
    assert device.info.limits.max_compute_work_group_count[1] == MOST_GROUPS

    def looked_up(rows: int) -> np.ndarray[Any, Any]:
        graph = Graph("g")
        ids = Tensor("ids", (rows,), "uint32", Role.INPUT)
        table = Tensor("table", (3, 1), "float32", Role.WEIGHT)
        (y,) = graph.add("embedding", "e", ids=ids, table=table)
        graph.output(y)
        with closing(Executor(device, [graph])) as executor:
            executor.write(table, np.array([[1], [2], [3]], np.float32))
            executor.write(ids, np.arange(rows, dtype=np.uint32) % 3)
            executor.step("g")
            return executor.read(y)[:, 0]

    assert (looked_up(MOST_GROUPS) == np.arange(MOST_GROUPS) % 3 + 1).all()
    with pytest.raises(DeviceError, match="embedding: expected 1 to 65535 workgroups along y, got 65536"):
        looked_up(MOST_GROUPS + 1)


def _experts(experts: int, precision: str = "float32") -> Graph:
    """Experts whose first matrix has `experts` times 2^24 numbers: 64 MiB each, or 32 in float16."""
    graph = Graph("g", precision)
    x, index = Tensor("x", (1, 4096), "float32", Role.INPUT), Tensor("index", (1, 1), "uint32", Role.INPUT)
    dtype = "float32" if precision == "float32" else "float16"
    w_in = Tensor("w_in", (experts, 4096, 4096), dtype, Role.WEIGHT)
    w_out = Tensor("w_out", (experts, 4096, 2048), dtype, Role.WEIGHT)
    graph.output(graph.add("moe_expert", "e", {"situ": 0.0}, x=x, index=index, w_in=w_in, w_out=w_out)[0])
    return graph


@pytest.mark.parametrize(("precision", "most"), [("float32", 63), ("float16", 127)], ids=["float32", "float16"])
def test_expert_weights_that_32_bits_cannot_count_are_refused(precision: str, most: int) -> None:
    """Shaders index numbers or vec4 in 32 bits. A binding is at most maxStorageBufferRange, itself a number of 32 bits:
    an index stays below 2^30, or 2^28 of vec4, if the host refuses what is larger, whatever a device can allocate.
    Sizes are Python's integers there, and do not wrap.
    """
    _planned(LARGE, _experts(most, precision))
    for experts in (most + 1, 2 * most + 2, 1 << 16):
        with pytest.raises(DeviceError, match=f"w_in: expected at most {MAX_BINDING} bytes in one binding"):
            _planned(LARGE, _experts(experts, precision))


def test_a_table_at_the_end_of_32_bits() -> None:
    _planned(LARGE, _table((1 << 28) - 1))
    for rows in (1 << 28, (1 << 28) + 1, 1 << 32, 1 << 40):
        with pytest.raises(
            DeviceError, match=f"table: expected at most {MAX_BINDING} bytes in one binding, got {16 * rows}"
        ):
            _planned(LARGE, _table(rows))


def test_nothing_is_allocated_of_what_is_too_large(vulkan_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its own buffers would do, and the second is beyond a binding: the first is not made either."""

    def none(*arguments: object) -> NoReturn:
        raise AssertionError("a buffer was asked for")

    limits = structs.replace(vulkan_device.info.limits, max_memory_allocation_size=1 << 40)
    monkeypatch.setattr(vulkan_device, "info", structs.replace(vulkan_device.info, limits=limits))
    monkeypatch.setattr(type(vulkan_device), "buffer", none)
    rows = limits.max_storage_buffer_range // 16 + 1
    with pytest.raises(VkcatError, match="table: expected at most .* bytes in one binding"):
        Executor(vulkan_device, [_table(rows)])


def test_the_last_row_of_the_largest_table_is_read(vulkan_device: Device) -> None:
    """As many bytes as a binding of lavapipe has: more numbers than float32 can count."""
    width, nbytes = 1024, min(vulkan_device.info.limits.max_storage_buffer_range, 1 << 27)
    rows = nbytes // (4 * width)
    assert rows * width > 1 << 24
    graph = _table(rows, width)
    ids, table, y = (graph.nodes[0].tensors[name] for name in ("ids", "table", "y"))
    values = np.zeros(table.shape, np.float32)
    values[-1] = np.arange(width)
    with closing(Executor(vulkan_device, [graph])) as executor:
        executor.write(table, values)
        executor.write(ids, np.array([rows - 1], np.uint32))
        executor.step("g")
        assert (executor.read(y)[0] == values[-1]).all()


def test_a_packing_says_what_a_binding_may_have() -> None:
    assert Packing(64, 1 << 40).max_binding == MAX_BINDING
    schedule([_table(256)], Packing(64, 1 << 20, max_binding=4096))
    with pytest.raises(DeviceError, match="table: expected at most 4095 bytes in one binding, got 4096"):
        schedule([_table(256)], Packing(64, 1 << 20, max_binding=4095))
