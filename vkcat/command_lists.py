"""A plan's steps as commands on a device: its buffers, a prepared dispatch for each node, and barriers between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from vkcat.device.interface import Barrier, Buffer, Command, Device, Dispatch, Slice, ToHost
from vkcat.graph import Graph, Node
from vkcat.parameters import Parameters
from vkcat.plan import Plan, PlannedDispatch, Region, Step
from vkcat.shader import Shader

Given = Mapping[Node, tuple[Shader, Parameters]]
"""The shader of each node, and what it is given besides tensors."""


def new_buffers(device: Device, plan: Plan, known: int, made: ExitStack) -> list[Buffer]:
    """The plan's buffers from the `known` first on; `made` closes them."""
    buffers = []
    for spec in plan.buffers[known:]:
        buffers.append(device.buffer(spec.nbytes, spec.memory))
        made.callback(buffers[-1].close)
    return buffers


def command_lists(
    device: Device, plan: Plan, graphs: Sequence[Graph], buffers: Sequence[Buffer], given: Given, made: ExitStack
) -> dict[str, tuple[list[Command], list[Command]]]:
    """By graph, the commands of even and of odd steps; `made` releases their dispatches."""
    maker = _Maker(device, buffers, given, made)
    lists = {}
    for graph in graphs:
        even, odd = plan.steps[graph.name]
        lists[graph.name] = maker.commands(even), maker.commands(odd)
    return lists


class _Maker:
    """Makes dispatches once each: those that find the same tensors in even and in odd steps are one."""

    def __init__(self, device: Device, buffers: Sequence[Buffer], given: Given, made: ExitStack) -> None:
        self._device, self._buffers, self._given, self._made = device, buffers, given, made
        self._dispatches: dict[tuple[Node, tuple[Region, ...]], Dispatch] = {}

    def commands(self, step: Step) -> list[Command]:
        commands: list[Command] = []
        for planned in step.dispatches:
            if planned.barrier is not None:
                commands.append(Barrier(self._slices(planned.barrier)))
            commands.append(self._dispatch(planned))
        if step.to_host:
            commands.append(ToHost(self._slices(step.to_host)))
        return commands

    def _slices(self, regions: Sequence[Region]) -> tuple[Slice, ...]:
        return tuple(Slice(self._buffers[region.buffer], region.offset, region.size) for region in regions)

    def _dispatch(self, planned: PlannedDispatch) -> Dispatch:
        key = planned.node, planned.regions
        if key not in self._dispatches:
            shader, given = self._given[planned.node]
            name, slices = planned.node.kernel.name, self._slices(planned.regions)
            self._dispatches[key] = self._device.dispatch(name, shader, slices, given.push, given.spec, given.groups)
            self._made.callback(self._device.release, self._dispatches[key])
        return self._dispatches[key]
