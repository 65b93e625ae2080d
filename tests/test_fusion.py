"""Fusion: what is joined, what must not be, and that the numbers are those of the unfused plan."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from stream_models import CONFIGS, GRU, RING, config, stored

import vkcat
from vkcat.blocks.scope import Shared
from vkcat.config import StreamConfig
from vkcat.device.interface import Device
from vkcat.fusion import FUSED, fused
from vkcat.graph import Graph, Node, Role, Tensor
from vkcat.kernel import Kernel
from vkcat.model import build_stream, fused_model
from vkcat.ops import OPS
from vkcat.presets import names, preset
from vkcat.runner import Runner
from vkcat.validate import validate_model

MOST = 64


def _fused(graph: Graph) -> list[Node]:
    return fused(graph, MOST).nodes


def _preset(name: str) -> StreamConfig:
    made = preset(name)
    assert isinstance(made, StreamConfig)
    return made


def _names(graph: Graph) -> list[str]:
    return [node.kernel.name for node in _fused(graph)]


def _weight(*shape: int) -> Tensor:
    return Tensor("w", shape, "float32", Role.WEIGHT)


def _input(*shape: int) -> Tensor:
    return Tensor("x", shape, "float32", Role.INPUT)


def _normed_product() -> tuple[Graph, Tensor, Tensor]:
    """rms_norm, then linear: fit to be one."""
    graph = Graph("g")
    (normed,) = graph.add("rms_norm", "norm", {"eps": 1e-6}, x=_input(2, 8), gain=_weight(8))
    (y,) = graph.add("linear", "product", x=normed, w=_weight(3, 8), bias=_weight(3))
    graph.output(y)
    return graph, normed, y


def test_gru_l3_is_eight_dispatches() -> None:
    graphs = build_stream(_preset("gru-l3")).graphs
    for name in ("tokens", "generate"):
        assert len(fused(graphs[name], MOST).nodes) == 8, _names(graphs[name])


def test_three_plain_gru_layers_with_a_head_are_five_dispatches() -> None:
    plain = config([GRU, GRU, GRU], "plain", norm="none")
    assert _names(build_stream(plain).graphs["generate"]) == ["sample_embedding", *3 * ["gru_cell"], "linear"]


@pytest.mark.parametrize("kernel", FUSED, ids=lambda kernel: kernel.name)
def test_every_fused_kernel_has_its_place(kernel: Kernel) -> None:
    made = [*(_preset(name) for name in names()), *CONFIGS.values()]
    models = [build_stream(one, batch) for one in made for batch in (1, 5)]
    used = {node.kernel.name for model in models for graph in model.graphs.values() for node in _fused(graph)}
    assert kernel.name in used


def test_a_norm_and_a_product_become_one() -> None:
    graph, _, y = _normed_product()
    (node,) = _fused(graph)
    assert node.kernel is OPS["norm_linear"]
    assert node.tensors["y"] is y
    assert node.attributes == {"eps": 1e-6}
    assert node.sizes == {"B": 2, "K": 8, "N": 3}


def test_what_is_an_output_stays() -> None:
    graph, normed, _ = _normed_product()
    graph.output(normed)
    assert _names(graph) == ["rms_norm", "linear"]


def test_what_another_reads_stays() -> None:
    graph, normed, _ = _normed_product()
    graph.add("silu", "other", x=normed)
    assert _names(graph) == ["rms_norm", "linear", "silu"]


def test_what_is_carried_stays() -> None:
    graph, normed, _ = _normed_product()
    graph.carry(Tensor("h", (2, 8), "float32", Role.STATE), normed)
    assert _names(graph) == ["rms_norm", "linear"]


def test_two_products_of_one_norm_stay() -> None:
    graph, normed, _ = _normed_product()
    graph.output(graph.add("linear", "second", x=normed, w=_weight(5, 8), bias=_weight(5))[0])
    assert _names(graph) == ["rms_norm", "linear", "linear"]


def test_what_is_needed_between_stays_before() -> None:
    """total = base + y, where base is made of y: linear and add cannot be one."""
    graph = Graph("g")
    (y,) = graph.add("linear", "product", x=_input(1, 4), w=_weight(4, 4), bias=_weight(4))
    (base,) = graph.add("silu", "gate", x=y)
    (total,) = graph.add("add", "sum", a=base, b=y)
    graph.output(total)
    assert _names(graph) == ["linear", "silu", "add"]


def test_a_bias_is_not_dropped() -> None:
    """ring_step leaves out biases that are zeros; one that is not keeps the parts apart."""
    made = config([RING])
    assert "ring_step" in _names(build_stream(made).graphs["tokens"])
    graph = build_stream(made).graphs["tokens"]
    at = next(i for i, node in enumerate(graph.nodes) if node.name == "blocks.0.q")
    node = graph.nodes[at]
    graph.nodes[at] = replace(node, tensors={**node.tensors, "bias": _weight(node.sizes["N"])})
    assert "ring_step" not in _names(graph)


def test_only_zeros_say_so() -> None:
    shared = Shared(1)
    assert shared.zeros(3).zeros
    assert not shared.constant("one", np.ones(1, np.float32)).zeros


def test_a_device_of_few_bindings_runs_what_it_can() -> None:
    graph = build_stream(_preset("gru-l3")).graphs["generate"]
    assert max(len(node.tensors) for node in fused(graph, 9).nodes) <= 9
    assert [node.kernel.name for node in fused(graph, 0).nodes] == [node.kernel.name for node in graph.nodes]


def test_nothing_is_joined_where_sums_are_rounded() -> None:
    rounded = replace(config([GRU]), dtype="float16-rounded")
    graph = build_stream(rounded).graphs["tokens"]
    assert fused(graph, MOST) is graph


def test_many_streams_share_their_products() -> None:
    """ring_step makes its products for each stream anew."""
    graphs = build_stream(config([RING]), batch=5).graphs
    assert "ring_step" not in _names(graphs["tokens"])


@pytest.mark.parametrize("made", CONFIGS.values(), ids=CONFIGS)
def test_fused_nodes(vulkan_device: Device, made: StreamConfig) -> None:
    model = fused_model(vulkan_device.info, build_stream(made, 3))
    results = list(validate_model(vulkan_device, model, stored(made).weights, "replay"))
    assert [result for result in results if not result.passed] == []
    assert {result.op for result in results} & {kernel.name for kernel in FUSED}


def _agree(device: Device, made: StreamConfig) -> None:
    outputs = []
    for fuse in (True, False):
        runner = Runner("test", device, "vulkan", "replay", fuse=fuse)
        session = vkcat.Session(stored(made), batch=2, runner=runner)
        session.prefill(np.random.default_rng(3).integers(0, 256, (2, 9)))
        session.generate(3, temperature=0.5)
        outputs.append(session.outputs)
        session.close()
    assert np.isfinite(outputs[0]).all()
    assert np.abs(outputs[0] - outputs[1]).max() < 2e-4


@pytest.mark.parametrize("made", CONFIGS.values(), ids=CONFIGS)
def test_fused_and_unfused_agree(vulkan_device: Device, made: StreamConfig) -> None:
    _agree(vulkan_device, made)


@pytest.mark.parametrize(
    "made", [pytest.param(CONFIGS["ring"], id="ring"), pytest.param(CONFIGS["all"], id="all", marks=pytest.mark.long)]
)
def test_fused_and_unfused_agree_on_every_backend(device: Device, made: StreamConfig) -> None:
    _agree(device, made)
