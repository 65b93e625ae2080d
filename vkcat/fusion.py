"""Fusion: a graph in which nodes that one kernel can do together are one node.

What stands for what is said by the fused kernels themselves (`Kernel.parts`). Tensors between the parts go; all others
stay the same objects, so whoever reads, writes or carries them need not know.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from vkcat.graph import Graph, Node, Tensor
from vkcat.kernel import ROUNDED, Kernel, Part
from vkcat.ops import OPS

FUSED = sorted((kernel for kernel in OPS.values() if kernel.parts), key=lambda kernel: -len(kernel.parts))
"""Kernels that stand for several, the greatest first."""


class _Match(Struct, frozen=True):
    """Nodes that the first parts of a kernel stand for, and by the kernel's names their tensors and attributes."""

    nodes: tuple[Node, ...]
    tensors: Mapping[str, Tensor]
    attributes: Mapping[str, float]


def fused(graph: Graph, most_bindings: int) -> Graph:
    """`graph` in as few nodes as the kernels allow that have at most so many bindings.

    Where nothing is joined it is the same graph; nothing is where partial sums are rounded.
    """
    if graph.precision == ROUNDED:
        return graph
    nodes = list(graph.nodes)
    for kernel in FUSED:
        if len(kernel.shapes) > most_bindings:
            continue
        while (match := next(_matches(kernel, graph, nodes), None)) is not None:
            nodes = _joined(kernel, nodes, match)
    return replace(graph, nodes=nodes) if len(nodes) < len(graph.nodes) else graph


def _matches(kernel: Kernel, graph: Graph, nodes: Sequence[Node]) -> Iterator[_Match]:
    for match in _extended(kernel.parts, nodes, _Match((), {}, {})):
        alone = _stays_inside(kernel, graph, nodes, match) and not _reads_its_own(kernel, match)
        if alone and _movable(nodes, match) and kernel.fits(_sizes(kernel, match)):
            yield match


def _extended(parts: Sequence[Part], nodes: Sequence[Node], match: _Match) -> Iterator[_Match]:
    """Every way to find the rest of the parts."""
    if not parts:
        yield match
        return
    for node in nodes:
        if node.kernel is parts[0].kernel and node not in match.nodes:
            longer = _with(match, parts[0], node)
            if longer is not None:
                yield from _extended(parts[1:], nodes, longer)


def _with(match: _Match, part: Part, node: Node) -> _Match | None:
    """The match with `node` as its next part, or None when it disagrees with those before."""
    tensors, attributes = dict(match.tensors), dict(match.attributes)
    for binding, tensor in node.tensors.items():
        if binding in part.zeros:
            if not tensor.zeros:
                return None
        elif tensors.setdefault(part.outer(binding), tensor) is not tensor:
            return None
    for name, number in node.attributes.items():
        if attributes.setdefault(name, number) != number:
            return None
    return _Match((*match.nodes, node), tensors, attributes)


def _stays_inside(kernel: Kernel, graph: Graph, nodes: Sequence[Node], match: _Match) -> bool:
    """Whether nobody else looks at what the fused kernel does not give."""
    inside = {tensor for name, tensor in match.tensors.items() if name not in kernel.shapes}
    seen = {*graph.outputs, *graph.carries, *graph.carries.values()}
    for node in nodes:
        if node not in match.nodes:
            seen.update(node.tensors.values())
    return not inside & seen


def _reads_its_own(kernel: Kernel, match: _Match) -> bool:
    """Whether one tensor would be both read and written, by two bindings: as where a product is added to itself."""
    written = {match.tensors[name] for name in kernel.written}
    return any(match.tensors[name] in written for name in kernel.shapes if name not in kernel.written)


def _movable(nodes: Sequence[Node], match: _Match) -> bool:
    """Whether all can run where the last of them does: nothing between depends on them, or they on it."""
    first, last = (at(nodes.index(node) for node in match.nodes) for at in (min, max))
    between = [node for node in nodes[first:last] if node not in match.nodes]
    written = {tensor for node in match.nodes for tensor in node.writes}
    read = {tensor for node in match.nodes for tensor in node.reads}
    return not any(written & {*node.reads, *node.writes} or read & {*node.writes} for node in between)


def _sizes(kernel: Kernel, match: _Match) -> dict[str, int]:
    return kernel.sizes({name: match.tensors[name].shape for name in kernel.shapes})


def _joined(kernel: Kernel, nodes: Sequence[Node], match: _Match) -> list[Node]:
    last = max(match.nodes, key=nodes.index)
    tensors = {name: match.tensors[name] for name in kernel.shapes}
    node = Node(last.name, kernel, tensors, _sizes(kernel, match), match.attributes, last.precision)
    return [node if other is last else other for other in nodes if other is last or other not in match.nodes]
