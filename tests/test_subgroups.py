"""Reductions in subgroups are right whatever a device's subgroups are, and only run where there are any."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from msgspec.structs import replace

from vkcat import glsl
from vkcat.device.interface import Device
from vkcat.device.limits import check_shader
from vkcat.errors import DeviceError
from vkcat.ops import OPS
from vkcat.parameters import shader_names
from vkcat.shader import SOURCES, Shader, load
from vkcat.spirv import SHADER, reflect
from vkcat.tiling import Tiling
from vkcat.validate.ops import validate_case, validate_op

# Subgroups of SIZE invocations that are strewn over the workgroup, the last one of what is left; of each the last
# invocation is elected.
EMULATED = """
#ifndef EMULATED
#define EMULATED
const uint COUNT = (gl_WorkGroupSize.x + SIZE - 1u) / SIZE;

uint subgroup_of(uint lane) { return lane * 37u % gl_WorkGroupSize.x / SIZE; }

bool emulated_elect() {
    for (uint i = gl_LocalInvocationID.x + 1u; i < gl_WorkGroupSize.x; ++i) {
        if (subgroup_of(i) == subgroup_of(gl_LocalInvocationID.x)) return false;
    }
    return true;
}
"""

OPERATION = """
shared TYPE kept_by_NAME_TYPE[gl_WorkGroupSize.x];

TYPE emulated_NAME(TYPE value) {
    uint own = gl_LocalInvocationID.x;
    barrier();
    kept_by_NAME_TYPE[own] = value;
    barrier();
    for (uint i = 0u; i < gl_WorkGroupSize.x; ++i) {
        if (i != own && subgroup_of(i) == subgroup_of(own)) value = JOINED;
    }
    return value;
}
"""

OPERATIONS = {"Add": "value + OTHER", "Max": "max(value, OTHER)", "Min": "min(value, OTHER)"}


def _emulation(size: int) -> str:
    """GLSL that comes before a reduction, once."""
    text = EMULATED.replace("SIZE", f"{size}u")
    for name, joined in OPERATIONS.items():
        for kind in ("float", "uint", "vec2"):
            made = OPERATION.replace("JOINED", joined.replace("OTHER", "kept_by_NAME_TYPE[i]"))
            text += made.replace("NAME", name).replace("TYPE", kind)
    return f"{text}#endif\n"


def _emulated(op: str, size: int, folder: Path) -> Shader:
    """The op's shader, reducing in subgroups of a size that the device does not have."""
    for path in (SOURCES / f"{op}.comp", *(SOURCES / "include").iterdir()):
        text = re.sub(r"#extension GL_KHR_shader_subgroup.*", "", path.read_text())
        text = text.replace("gl_SubgroupID", "subgroup_of(gl_LocalInvocationID.x)").replace("gl_NumSubgroups", "COUNT")
        text = text.replace("subgroupElect", "emulated_elect")
        text = re.sub(r"\bsubgroup(?=Add|Max|Min)", "emulated_", text)
        if path.name in ("best.glsl", "reduction.glsl"):
            text = _emulation(size) + text
        (folder / path.name).write_text(text)
    name = f"{op}{glsl.SUBGROUP}"
    code = glsl.compile_file(folder / f"{op}.comp", folder, glsl.SUBGROUP)
    shader = Shader(name, code, reflect(code, name))
    assert shader.interface.capabilities == (SHADER,), "nothing but the emulation"
    return shader


@pytest.mark.parametrize("size", [1, 5, 16, 32, 128])
@pytest.mark.parametrize("op", ["rms_norm", "argmax", "depth_attnres", "sample", "ring_attention"])
def test_any_subgroups(vulkan_device: Device, tmp_path: Path, op: str, size: int) -> None:
    shader = _emulated(op, size, tmp_path)
    # A workgroup of a software driver's default is one subgroup of most sizes.
    results = list(validate_op(vulkan_device, OPS[op], {shader.name: shader}, tiling=Tiling(lanes=64)))
    assert results
    assert [result.problem for result in results if not result.passed] == []


@pytest.mark.parametrize("lanes", [1, 2, 4, 16, 128])
def test_workgroups_of_less_and_more_than_a_subgroup(vulkan_device: Device, lanes: int) -> None:
    for case in OPS["ring_attention"].cases:
        results = validate_case(vulkan_device, OPS["ring_attention"], case, tiling=Tiling(rows=2, lanes=lanes))
        assert [result.problem for result in results if not result.passed] == []


def test_both_drivers_reduce_in_subgroups(device: Device) -> None:
    assert device.info.subgroup_arithmetic
    assert shader_names("argmax", device.info) == ("argmax.subgroup", "argmax")
    assert shader_names("ring_step.float16", device.info) == ("ring_step.float16.subgroup", "ring_step.float16")
    assert shader_names("linear", device.info) == ("linear",), "neighbours that share a sum may be no subgroup"


def test_validate_runs_both_ways(vulkan_device: Device) -> None:
    names = [result.case for result in validate_op(vulkan_device, OPS["argmax"])]
    assert len(names) == len(set(names)) == 2 * len(OPS["argmax"].cases)
    assert sum(name.endswith("-subgroup") for name in names) == len(OPS["argmax"].cases)


def test_a_device_without_arithmetic_reduces_in_shared_memory(
    vulkan_device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vulkan_device, "info", replace(vulkan_device.info, subgroup_arithmetic=False))
    assert shader_names("argmax", vulkan_device.info) == ("argmax",)
    with pytest.raises(DeviceError, match=r"argmax\.subgroup: .*expected no arithmetic in subgroups"):
        check_shader(load("argmax.subgroup"), (), vulkan_device.info)
    results = list(validate_op(vulkan_device, OPS["argmax"]))
    assert len(results) == len(OPS["argmax"].cases)
    assert all(result.passed for result in results)
