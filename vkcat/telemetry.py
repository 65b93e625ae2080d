"""What a running model tells of itself: nodes that measure others, added to its graphs, and their results by step.

Everything is computed on the device and becomes readable with the step's outputs, so a step still submits once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from vkcat.executor import Steps
from vkcat.graph import Graph, Node, Tensor
from vkcat.model import Model
from vkcat.summary import part_name

Array = NDArray[Any]
Record = dict[str, Any]
"""`step`, `graph`, and `parts`: by block or norm, then by measurement, a number for each stream (or expert)."""


class Probe(Struct, frozen=True):
    """A tensor to read after each step, and what its values are called."""

    part: str
    name: str
    tensor: Tensor
    convert: Callable[[Array], Array] = lambda values: values


class Telemetry:
    """Adds the measuring nodes to a model's graphs when it is made: before an executor plans them."""

    def __init__(self, model: Model) -> None:
        self._probes = {name: list(_probes(graph, model.mode)) for name, graph in model.graphs.items()}
        self._step = 0
        for name, probes in self._probes.items():
            for probe in probes:
                if probe.tensor not in model.graphs[name].outputs:
                    model.graphs[name].output(probe.tensor)

    def record(self, steps: Steps, graph: str) -> Record:
        """The measurements of the step that has just run."""
        parts: dict[str, dict[str, Any]] = {}
        for probe in self._probes[graph]:
            values = probe.convert(steps.read(probe.tensor))
            parts.setdefault(probe.part, {})[probe.name] = _plain(values)
            if probe.name == "tokens_per_expert":
                parts[probe.part]["load_violation"] = _violation(values)
        record = {"step": self._step, "graph": graph, "parts": parts}
        self._step += 1
        return record


def _violation(load: Array) -> float | None:
    """How far the fullest expert is above the mean: max / mean - 1 (Wang et al., arXiv 2408.15664, MaxVio)."""
    return float(load.max() / load.mean() - 1) if load.any() else None


def _plain(values: Array) -> list[Any]:
    """Numbers as JSON has them: what is not finite is null."""
    return [value if np.isfinite(value) else None for value in values.tolist()]


def _probes(graph: Graph, mode: Tensor) -> Iterator[Probe]:
    nodes = list(graph.nodes)
    last = {part_name(node.name): node for node in nodes}
    for node in nodes:
        part = part_name(node.name)
        if node.kernel.name in _OF_KERNEL:
            yield from _OF_KERNEL[node.kernel.name](graph, node, part, mode)
        if last[part] is node and ("blocks." in part or part.endswith("output")):
            made = next(node.tensors[name] for name in node.kernel.outputs)
            yield from _activation(graph, f"{node.name}.made", part, "", made)


def _activation(graph: Graph, name: str, part: str, suffix: str, x: Tensor) -> Iterator[Probe]:
    rms, greatest, nan_count, inf_count = graph.add("activation_stats", f"{name}.stats", x=x)
    for key, tensor in (("rms", rms), ("greatest", greatest), ("nan", nan_count), ("inf", inf_count)):
        yield Probe(part, f"{key}{suffix}", tensor)


def _of_norm(graph: Graph, node: Node, part: str, mode: Tensor) -> Iterator[Probe]:
    del mode
    for suffix, binding in (("_before", "x"), ("_after", "y")):
        yield from _activation(graph, f"{node.name}{suffix}", part, suffix, node.tensors[binding])


def _of_gru(graph: Graph, node: Node, part: str, mode: Tensor) -> Iterator[Probe]:
    before, after = node.tensors["h"], node.tensors["h_next"]
    (drift,) = graph.add("state_drift", f"{node.name}.drift", before=before, after=after, mode=mode)
    yield Probe(part, "drift", drift)


def _of_memory(graph: Graph, node: Node, part: str, mode: Tensor) -> Iterator[Probe]:
    del mode
    given = {name: node.tensors[name] for name in ("z", "a")}
    made = graph.add("decay_stats", f"{node.name}.decay", node.attributes, **given)
    for name, tensor in zip(("decay_least", "decay_mean", "decay_greatest"), made, strict=True):
        yield Probe(part, name, tensor)


def _of_ring(graph: Graph, node: Node, part: str, mode: Tensor) -> Iterator[Probe]:
    del graph, mode
    window = node.sizes["W"]
    yield Probe(part, "ring_occupancy", node.tensors["t_next"], lambda count: np.minimum(count, window) / window)


def _of_route(graph: Graph, node: Node, part: str, mode: Tensor) -> Iterator[Probe]:
    attributes = {"softmax": node.attributes["softmax"]}
    given = {name: node.tensors[name] for name in ("logits", "index")}
    entropy, load = graph.add("moe_stats", f"{node.name}.stats", attributes, mode=mode, **given)
    yield Probe(part, "router_entropy", entropy)
    yield Probe(part, "tokens_per_expert", load)


def _of_capacity(graph: Graph, node: Node, part: str, mode: Tensor) -> Iterator[Probe]:
    del graph, mode
    yield Probe(part, "dropped", node.tensors["dropped"])


_OF_KERNEL: dict[str, Callable[[Graph, Node, str, Tensor], Iterator[Probe]]] = {
    "rms_norm": _of_norm,
    "gru_cell": _of_gru,
    "gru_candidate": _of_gru,
    "delta_memory": _of_memory,
    "ring_write": _of_ring,
    "moe_route": _of_route,
    "moe_capacity": _of_capacity,
}
