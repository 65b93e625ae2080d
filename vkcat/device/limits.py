"""Checks that a shader and a dispatch fit a device, made before any driver sees them.

Drivers and Kompute accept some of these and go wrong in silence, so vkcat never leaves them to chance.
"""

from __future__ import annotations

from collections.abc import Sequence

from vkcat.device.interface import DeviceInfo, Slice, Words
from vkcat.errors import DeviceError, mismatch
from vkcat.shader import Shader
from vkcat.spirv import GROUP_NON_UNIFORM, GROUP_NON_UNIFORM_ARITHMETIC, MATRIX, SHADER

_NAMES = {
    9: "Float16",
    10: "Float64",
    11: "Int64",
    12: "Int64Atomics",
    22: "Int16",
    39: "Int8",
    62: "GroupNonUniformVote",
    64: "GroupNonUniformBallot",
    65: "GroupNonUniformShuffle",
    66: "GroupNonUniformShuffleRelative",
    67: "GroupNonUniformClustered",
    68: "GroupNonUniformQuad",
    4433: "StorageBuffer16BitAccess",
    4434: "UniformAndStorageBuffer16BitAccess",
    4441: "VariablePointersStorageBuffer",
    4442: "VariablePointers",
    4448: "StorageBuffer8BitAccess",
    5345: "VulkanMemoryModel",
    5347: "PhysicalStorageBufferAddresses",
}
"""Of the capabilities that a compute shader asks for most."""


def _check_capabilities(shader: Shader, info: DeviceInfo) -> None:
    """Raises `DeviceError` for one that the device was not opened with: it is opened without any optional feature."""
    asked = shader.interface.capabilities
    if GROUP_NON_UNIFORM_ARITHMETIC in asked and not info.subgroup_arithmetic:
        raise DeviceError(mismatch(f"{shader.name}: {info.name}", "no arithmetic in subgroups", "some"))
    for capability in asked:
        if capability not in (MATRIX, SHADER, GROUP_NON_UNIFORM, GROUP_NON_UNIFORM_ARITHMETIC):
            name = _NAMES.get(capability, f"number {capability}")
            expected = "no capability of SPIR-V that the device was not opened with"
            raise DeviceError(mismatch(f"{shader.name}: {info.name}", expected, name))


def check_shader(shader: Shader, spec: Sequence[int], info: DeviceInfo) -> None:
    """Raises `DeviceError` when the shader, with these specialisation constants, asks for more than the device has."""
    limits, interface = info.limits, shader.interface
    _check_capabilities(shader, info)
    if len(spec) != len(interface.spec) or not all(0 <= value < 1 << 32 for value in spec):
        expected = f"{len(interface.spec)} specialisation constants of 32 bits"
        raise DeviceError(mismatch(shader.name, expected, list(spec)))
    constants = dict(zip(interface.spec, spec, strict=True))
    local_size = interface.sized(constants)
    x, y, z = local_size
    numbers = [binding.index for binding in interface.bindings]
    checks: list[tuple[str, int, int]] = [
        ("invocations a workgroup", x * y * z, limits.max_compute_work_group_invocations),
        ("bytes of shared memory", interface.shared(constants), limits.max_compute_shared_memory_size),
        ("bytes of push constants", interface.push_bytes, limits.max_push_constants_size),
        # Drivers have a table of bindings by number.
        ("storage buffers", max(numbers, default=-1) + 1, limits.max_per_stage_descriptor_storage_buffers),
    ]
    checks += [
        (f"invocations along {axis}", size, most)
        for axis, size, most in zip("xyz", local_size, limits.max_compute_work_group_size, strict=True)
    ]
    for what, asked, most in checks:
        if asked > most:
            raise DeviceError(mismatch(f"{shader.name}: {info.name}", f"at most {most} {what}", asked))
    if 0 in local_size:
        raise DeviceError(mismatch(f"{shader.name}: {info.name}", "a local size of at least 1", local_size))


def check_dispatch(
    name: str, shader: Shader, slices: Sequence[Slice], push: Words, groups: tuple[int, int, int], info: DeviceInfo
) -> None:
    """Raises `DeviceError` for a missing binding, an oversized range, push constants of another size than the shader's,
    or a group count beyond the limit.
    """
    limits = info.limits
    if push.nbytes != shader.interface.push_bytes:
        raise DeviceError(mismatch(name, f"{shader.interface.push_bytes} bytes of push constants", push.nbytes))
    if len(slices) != len(shader.interface.bindings):
        raise DeviceError(mismatch(name, f"{len(shader.interface.bindings)} bindings", len(slices)))
    for binding, part in zip(shader.interface.bindings, slices, strict=True):
        if part.size > limits.max_storage_buffer_range:
            most = f"at most {limits.max_storage_buffer_range} bytes (maxStorageBufferRange of {info.name})"
            raise DeviceError(mismatch(f"{name}: {binding.name}", most, part.size))
    for axis, count, most_groups in zip("xyz", groups, limits.max_compute_work_group_count, strict=True):
        if not 1 <= count <= most_groups:
            raise DeviceError(
                mismatch(name, f"1 to {most_groups} workgroups along {axis}", count, "use smaller tensors")
            )
