"""What any model is to those that run, validate or profile it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from vkcat.blocks import Shared
from vkcat.device.interface import DeviceInfo
from vkcat.errors import InputError, ModelError, mismatch
from vkcat.fusion import fused
from vkcat.graph import Graph, Role, Tensor
from vkcat.parameters import machine
from vkcat.sequencing import sequenced


class Model(Struct, frozen=True):
    """Graphs of a model for a batch of B streams, by name, and the tensors they share.

    `mode` (B) says what a step does to each stream. `feeds` are the inputs that a session sets before each step of a
    graph, `results` what it reads after it. `limits` are the exclusive upper limits of uint32 inputs and states,
    `starts` the states that a host sets before the first step of a graph that reads them.
    """

    batch: int
    graphs: Mapping[str, Graph]
    shared: Shared
    mode: Tensor
    feeds: Mapping[str, tuple[Tensor, ...]]
    results: Mapping[str, tuple[Tensor, ...]]
    limits: Mapping[Tensor, int]
    starts: tuple[Tensor, ...]

    @property
    def weights(self) -> dict[str, Tensor]:
        """By their name in `model.safetensors`."""
        return self.shared.weights

    def values(self, weights: Mapping[str, NDArray[Any]]) -> dict[Tensor, NDArray[Any]]:
        """Everything that is set once: the given weights, and the constants. Raises `ModelError` for a missing one."""
        missing = sorted(self.weights.keys() - weights.keys())
        if missing:
            raise ModelError(mismatch("weights", f"all {len(self.weights)}", f"no {missing[0]}"))
        return {tensor: _native(weights[name]) for name, tensor in self.weights.items()} | self.shared.constants


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """In this machine's order of bytes."""
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def fused_for(info: DeviceInfo, graphs: Sequence[Graph]) -> tuple[Graph, ...]:
    """The graphs in as few nodes as the device has bindings for, and recurrences as it runs them best."""
    most = info.limits.max_per_stage_descriptor_storage_buffers
    return tuple(sequenced(fused(graph, most), machine(info)) for graph in graphs)


def fused_model(info: DeviceInfo, model: Model) -> Model:
    """The model as a device runs it."""
    graphs = fused_for(info, tuple(model.graphs.values()))
    return replace(model, graphs={graph.name: graph for graph in graphs})


def mode_input(batch: int) -> Tensor:
    """Raises `InputError` unless there is at least one stream."""
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
        raise InputError(mismatch("batch", "an integer of at least 1", repr(batch)))
    return Tensor("mode", (batch,), "uint32", Role.INPUT)


def initial_weights(model: Model, seed: int) -> dict[str, NDArray[Any]]:
    """Weights drawn as their blocks say; each by its own generator, so that a new block changes no other's."""
    values = {}
    for name, tensor in model.weights.items():
        rng = np.random.default_rng([seed, *name.encode()])
        values[name] = model.shared.initials[name](rng, tensor.shape).astype(tensor.dtype)
    return values
