"""A node of a graph by itself, to be timed in any tiling."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

import numpy as np

from vkcat.device.interface import Barrier, Command, Device, Memory, Recording, Slice
from vkcat.executor import device_packing
from vkcat.graph import Graph, Node
from vkcat.kernel import PRECISIONS, Array, Case
from vkcat.ops.gates import STEP
from vkcat.parameters import parameters, shader_names
from vkcat.plan import paneled
from vkcat.profile.floors import timed
from vkcat.shader import load
from vkcat.tiling import Tiling
from vkcat.tilings import node_key
from vkcat.words import device_words

REPEATS = 8
"""How many more dispatches the longer of two submissions has: the rest of a submission's cost cancels out."""


def tunable(graphs: Sequence[Graph]) -> list[Node]:
    """One node of each shader and sizes that leave a tiling open."""
    nodes = {node_key(node): node for graph in graphs for node in graph.nodes}
    return [node for node in nodes.values() if "ROWS" in load(node.shader).interface.spec]


def case_of(node: Node) -> Case:
    """A case of the node's kernel at its sizes."""
    precision = node.precision if "." in node.shader else PRECISIONS[0]
    return Case(dict(node.sizes), attributes=dict(node.attributes), precision=precision)


def _busy(node: Node, arrays: dict[str, Array]) -> dict[str, Array]:
    """The case's inputs with every stream at work in every step, and its ring full."""
    sizes = node.sizes
    whole = {"mode": STEP, "lengths": sizes.get("R", 0) // sizes.get("B", 1), "t": sizes.get("W", 0)}
    return arrays | {name: np.full_like(arrays[name], whole[name]) for name in arrays.keys() & whole.keys()}


class Subject:
    """The node's tensors on a device, with its case's inputs. Closes what it made."""

    def __init__(self, device: Device, node: Node) -> None:
        self._device, self._node, self._shader = device, node, load(shader_names(node.shader, device.info)[0])
        self._made = ExitStack()
        case = case_of(node)
        arrays = _busy(node, node.kernel.inputs(np.random.default_rng(0), case))
        packing = device_packing(device)
        found = paneled([Graph("subject", nodes=[node])], packing.panel)
        self._panel = packing.panel if found else 1
        self._slices = []
        for binding, tensor in node.tensors.items():
            buffer = device.buffer(max(packing.size(tensor, paneled=tensor in found), 16), Memory.DEVICE)
            self._made.callback(buffer.close)
            if binding in arrays:
                values = np.nan_to_num(arrays[binding]).astype(tensor.dtype)
                buffer.write(device_words(tensor, values, packing.panel if tensor in found else 1))
            self._slices.append(Slice(buffer, 0, buffer.nbytes))
        self._recordings: dict[Tiling, tuple[Recording, Recording]] = {}

    def _record(self, tiling: Tiling) -> tuple[Recording, Recording]:
        given = parameters(self._node, self._shader, tiling, self._panel)
        dispatch = self._device.dispatch(
            self._node.kernel.name, self._shader, self._slices, given.push, given.spec, given.groups
        )
        self._made.callback(self._device.release, dispatch)
        pair = (self._device.recording(), self._device.recording())
        # A barrier between: in a step, too, each waits for the one before.
        each: list[Command] = [dispatch, Barrier(dispatch.writes)]
        for recording, count in zip(pair, (1, 1 + REPEATS), strict=True):
            self._made.callback(recording.close)
            recording.record(each * count)
        self._recordings[tiling] = pair
        for recording in pair:
            timed(recording)
        return pair

    def time(self, tiling: Tiling) -> float:
        """Nanoseconds of a dispatch, by the slope from one to several in a submission."""
        short, long = self._recordings.get(tiling) or self._record(tiling)
        return (timed(long) - timed(short)) / REPEATS

    def close(self) -> None:
        self._made.close()
