"""A fusion that assumes one input: of two addends either may be the product, or both, and each norm has its own eps.

Met publicly: ggml-org/llama.cpp#14545, where a fused norm took its epsilon from another place.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from vkcat.device.interface import Device
from vkcat.executor import Executor
from vkcat.fusion import fused
from vkcat.graph import Graph, Role, Tensor
from vkcat.reference import ReferenceExecutor

Array = np.ndarray[Any, Any]
WIDTH = 20


def _input(name: str) -> Tensor:
    return Tensor(name, (2, WIDTH), "float32", Role.INPUT)


def _product(graph: Graph, name: str, x: Tensor) -> Tensor:
    w, bias = (
        Tensor(f"{name}.w", (WIDTH, WIDTH), "float32", Role.WEIGHT),
        Tensor("bias", (WIDTH,), "float32", Role.WEIGHT),
    )
    return graph.add("linear", name, x=x, w=w, bias=bias)[0]


def _sum(order: str) -> Graph:
    """A product and what it is added to, in either order, or to itself, or two products."""
    graph = Graph("g")
    base = _input("base")
    if order == "of two products":
        base = _product(graph, "other", base)
    product = _product(graph, "product", _input("x"))
    first, second = {
        "the product last": (base, product),
        "the product first": (product, base),
        "of two products": (base, product),
        "to itself": (product, product),
        "base and base": (base, base),
    }[order]
    (total,) = graph.add("add", "sum", a=first, b=second)
    graph.output(total)
    graph.output(product)
    return graph


def _norms() -> Graph:
    """Two norms of one input, each with an eps and a gain of its own, each before a product."""
    graph, x = Graph("g"), _input("x")
    for name, eps in (("small", 1e-6), ("large", 0.5)):
        gain = Tensor(f"{name}.gain", (WIDTH,), "float32", Role.WEIGHT)
        (normed,) = graph.add("rms_norm", f"{name}.norm", {"eps": eps}, x=x, gain=gain)
        graph.output(_product(graph, f"{name}.product", normed))
    return graph


ORDERS = ["the product last", "the product first", "of two products", "to itself", "base and base"]
GRAPHS = {**{order: _sum(order) for order in ORDERS}, "norms of another eps": _norms()}


def _wrong(device: Device, plain: Graph, joined: Graph) -> list[str]:
    """The outputs in which a device that runs `joined` is not near the reference of `plain`."""
    rng, reference = np.random.default_rng(0), ReferenceExecutor([plain])
    with closing(Executor(device, [joined])) as executor:
        for tensor in plain.tensors():
            if tensor.role is not Role.TEMPORARY:
                values = rng.standard_normal(tensor.shape).astype(np.float32)
                reference.write(tensor, values)
                if tensor in joined.tensors():
                    executor.write(tensor, values)
        reference.step(plain.name)
        executor.step(joined.name)
        return [t.name for t in plain.outputs if np.abs(executor.read(t) - reference.read(t)).max() > 1e-4]


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_joined_gives_the_numbers_of_its_parts(device: Device, name: str) -> None:
    assert _wrong(device, GRAPHS[name], fused(GRAPHS[name], 64)) == []


def test_what_can_be_joined_is() -> None:
    """The product last, alone or after another, and both norms. Of a product that is added to itself a fused kernel
    would read, by one binding, what it writes by another.
    """
    fewer = {name for name, graph in GRAPHS.items() if len(fused(graph, 64).nodes) < len(graph.nodes)}
    assert fewer == {"the product last", "of two products", "norms of another eps"}


def test_a_fusion_that_takes_another_input_is_found(vulkan_device: Device) -> None:
    """The test above can fail: here a sum is of the product and its own input."""
    plain = GRAPHS["the product last"]
    joined = fused(plain, 64)
    (node,) = joined.nodes
    assert node.kernel.name == "linear_add"
    wrong = replace(node, tensors={**node.tensors, "base": node.tensors["x"]})
    assert _wrong(vulkan_device, plain, replace(joined, nodes=[wrong])) == ["sum.y"]
