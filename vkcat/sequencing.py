"""Recurrences in one dispatch: a chain of nodes, each a step of a GRU, as one node that goes through all of them.

It pays where a step's product is smaller than the dispatch and barrier it would cost. Like fusion it leaves every
tensor as it is that others read, write or carry.
"""

from __future__ import annotations

from msgspec.structs import replace

from vkcat.graph import Graph, Node
from vkcat.kernel import ROUNDED
from vkcat.ops import OPS
from vkcat.ops.gru_sequence import pays
from vkcat.tiling import Machine

STEP, SEQUENCE = OPS["gru_recurrence"], OPS["gru_sequence"]


def sequenced(graph: Graph, machine: Machine) -> Graph:
    """`graph` with its recurrences in one node each where that is faster; where nothing is joined, the same graph."""
    if graph.precision == ROUNDED:
        return graph
    nodes: list[Node] = []
    chain: list[Node] = []
    for node in (*graph.nodes, None):
        if chain and not (node and _follows(chain[-1], node)):
            nodes += _joined(chain, machine)
            chain = []
        if node is None:
            break
        if node.kernel is STEP and (chain or node.attributes["t"] == 0):
            chain.append(node)
        else:
            nodes.append(node)
    return replace(graph, nodes=nodes) if len(nodes) < len(graph.nodes) else graph


def _follows(before: Node, node: Node) -> bool:
    """Whether a node is the next step of the same recurrence."""
    return (
        node.kernel is STEP
        and node.attributes["t"] == before.attributes["t"] + 1
        and node.tensors["h"] is before.tensors["h_next"]
        and all(node.tensors[name] is before.tensors[name] for name in STEP.shapes if name not in ("h", "h_next"))
    )


def _joined(chain: list[Node], machine: Machine) -> list[Node]:
    first, last = chain[0], chain[-1]
    if len(chain) < 2 or len(chain) * first.sizes["B"] != first.sizes["R"] or not pays(first.sizes, machine):
        return chain
    given = {**first.tensors, "h_next": last.tensors["h_next"]}
    tensors = {name: given[name] for name in SEQUENCE.shapes}
    return [Node(last.name, SEQUENCE, tensors, first.sizes, {}, first.precision)]
