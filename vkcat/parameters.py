"""What a dispatch of a node is given besides its tensors: push constants, specialisation constants, group counts."""

from __future__ import annotations

import os

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vkcat.device.interface import DeviceInfo
from vkcat.glsl import SUBGROUP
from vkcat.graph import Node
from vkcat.kernel import check_interface
from vkcat.plan import PANEL
from vkcat.shader import Shader, exists
from vkcat.tiling import Machine, Tiling
from vkcat.tilings import measured


class Parameters(Struct, frozen=True):
    """`spec` in the order of the constants' ids, `groups` along x, y and z."""

    push: NDArray[np.uint32]
    spec: tuple[int, ...]
    groups: tuple[int, int, int]


def parameters(node: Node, shader: Shader, tiling: Tiling, panel: int = 1) -> Parameters:
    """For `node` with `shader`, of whose constants those count that it has; its matrices lie in panels of so many rows.

    Raises `ShaderError` when the shader does not take what the kernel gives.
    """
    check_interface(node.kernel, shader)
    interface, sizes, numbers = shader.interface, node.sizes, node.attributes
    tiling = tiling.limited(interface.spec)
    constants = tiling.constants | {"PANEL": panel}
    constants |= {name: of(sizes) for name, of in node.kernel.constants.items()}
    push = [sizes[name] if name in sizes else np.float32(numbers[name]).view(np.uint32) for name in interface.push]
    return Parameters(
        push=np.array(push, np.uint32),
        spec=tuple(constants[name] for name in interface.spec),
        groups=node.kernel.launch(sizes, tiling).groups(interface.sized(constants)),
    )


def machine(info: DeviceInfo) -> Machine:
    """What of a device choices depend on."""
    return Machine(info.kind == "cpu", os.cpu_count() or 1)


def shader_names(name: str, info: DeviceInfo) -> tuple[str, ...]:
    """Names of what a device can run in place of a node's shader, the one to choose first.

    That is the one that reduces in subgroups, where the device can: it waits at two barriers instead of at one and
    another for each doubling of a workgroup. It is no slower even on software drivers: where a reduction is much of an
    op (`rms_norm`, `gated_norm`, `depth_attnres`, `argmax`, `sample`), it takes 0.83 to 0.95 of the time on lavapipe
    and 0.45 to 0.73 on SwiftShader, and elsewhere the same. GPUs add in a subgroup without any memory, so they are
    given it too, unmeasured.
    """
    reducing = f"{name}{SUBGROUP}"
    return (reducing, name) if info.subgroup_arithmetic and exists(reducing) else (name,)


def panel_rows(info: DeviceInfo) -> int:
    """How many rows of a matrix lie side by side on a device."""
    return PANEL if info.kind == "cpu" else 1


def default_tiling(node: Node, info: DeviceInfo) -> Tiling:
    """What runs well on a kind of device where nothing was measured."""
    return node.kernel.tiling(node.sizes, machine(info))


def chosen_tiling(node: Node, info: DeviceInfo) -> Tiling:
    """What `vkcat tune` found best for the node on this device, else the default."""
    return measured(info, node) or default_tiling(node, info)
