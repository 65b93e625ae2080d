"""Matrices in panels: which lie so, that nothing else changes, and that what they hold comes back."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from stream_models import CONFIGS, stored

from vkcat.device.interface import Device
from vkcat.executor import Executor, device_packing
from vkcat.graph import Graph, Role, Tensor
from vkcat.model import build, fused_model, with_rows
from vkcat.plan import Packing, paneled, schedule
from vkcat.words import from_panels, in_panels, padded


def _weight(name: str, *shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(name, shape, dtype, Role.WEIGHT)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("shape", [(64, 4), (65, 63), (100, 257), (3, 1)])
def test_panels_and_back(shape: tuple[int, int], dtype: str) -> None:
    tensor = _weight("w", *shape, dtype=dtype)
    values = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    words = padded(tensor, values).ravel()
    there = in_panels(tensor, words, 32)
    assert there.nbytes == -(-shape[0] // 32) * 32 * tensor.pitch * values.itemsize
    assert (from_panels(tensor, there, 32) == words).all()
    assert (in_panels(tensor, words, 1) == words).all()


def test_where_a_row_goes() -> None:
    """The k-th vec4 of row r is at (r / panel * rows' vec4 + k) * panel + r % panel."""
    tensor = _weight("w", 5, 8)
    there = in_panels(tensor, np.arange(40, dtype=np.uint32), 2).reshape(-1, 4)
    for row in range(5):
        for k in range(2):
            assert (there[(row // 2 * 2 + k) * 2 + row % 2] == np.arange(4) + 8 * row + 4 * k).all()
    assert (there[[9, 11]] == 0).all(), "rows that fill the last panel"


def _product(name: str, w: Tensor, op: str = "linear") -> Graph:
    graph = Graph(name)
    if op == "linear":
        x = Tensor("x", (1, w.shape[1]), "float32", Role.INPUT)
        (y,) = graph.add("linear", name, x=x, w=w, bias=_weight("bias", w.shape[0]))
    else:
        ids = Tensor("ids", (1,), "uint32", Role.INPUT)
        (y,) = graph.add("embedding", name, ids=ids, table=w)
    graph.output(y)
    return graph


def test_what_another_reads_row_by_row_stays() -> None:
    own, shared = _weight("own", 128, 8), _weight("shared", 128, 8)
    graphs = [_product("a", own), _product("b", shared), _product("c", shared, "embedding")]
    assert paneled(graphs, 32) == {own}
    assert paneled(graphs, 1) == set()
    assert paneled([_product("small", _weight("small", 63, 8))], 32) == set()


def test_a_node_finds_all_of_its_matrices_alike() -> None:
    """gru_cell's w_ih is read by an embedding too, so its w_hh stays row by row as well."""
    graph = _product("table", w_ih := _weight("w_ih", 192, 64), "embedding")
    x, h = Tensor("x", (1, 64), "float32", Role.INPUT), Tensor("h", (1, 64), "float32", Role.STATE)
    mode = Tensor("mode", (1,), "uint32", Role.INPUT)
    given = {"w_ih": w_ih, "w_hh": _weight("w_hh", 192, 64), "b_ih": _weight("b", 192), "b_hh": _weight("c", 192)}
    (after,) = graph.add("gru_cell", "cell", x=x, h=h, mode=mode, **given)
    graph.carry(h, after)
    assert paneled([graph], 32) == set()


def test_a_graph_that_is_added_finds_matrices_as_they_lie() -> None:
    packing, w = Packing(64, 1 << 20, panel=32), _weight("w", 128, 8)
    first = schedule([_product("a", w)], packing)
    assert first.paneled == {w}
    assert schedule([_product("b", w)], packing, first).paneled == {w}
    with pytest.raises(ValueError, match=r"matrices that lie otherwise already: \['w'\]"):
        schedule([_product("c", w, "embedding")], packing, first)


@pytest.mark.parametrize("kind", ["cpu", "discrete", "integrated"])
def test_panels_are_for_software_drivers(vulkan_device: Device, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(vulkan_device, "info", replace(vulkan_device.info, kind=kind))
    assert (device_packing(vulkan_device).panel > 1) == (kind == "cpu")


@pytest.mark.parametrize("name", ["gru", "ring", "experts"])
def test_panels_change_no_bit(vulkan_device: Device, name: str) -> None:
    made = stored(CONFIGS[name])
    model = fused_model(vulkan_device.info, with_rows(build(made.config, 2), 4))
    outputs = []
    for panel in (1, 4, 32):
        packing = replace(device_packing(vulkan_device), panel=panel)
        executor = Executor(vulkan_device, tuple(model.graphs.values()), packing=packing)
        executor.fill(0)
        rng = np.random.default_rng(0)
        for tensor, values in model.values(made.weights).items():
            executor.write(tensor, values)
        for graph in model.graphs.values():
            for tensor in graph.tensors():
                if tensor.role is Role.INPUT:
                    executor.write(tensor, rng.integers(1, 3, tensor.shape).astype(tensor.dtype))
        assert bool(executor.plan.paneled) == (panel > 1)
        for tensor in executor.plan.paneled:
            assert (executor.read_state(tensor) == model.values(made.weights)[tensor]).all()
        for graph in ("tokens", "tokens x 4", "generate", "tokens"):
            executor.step(graph)
            outputs += [executor.read(tensor).tobytes() for tensor in model.graphs[graph].outputs]
        executor.close()
    third = len(outputs) // 3
    assert outputs[:third] == outputs[third : 2 * third] == outputs[2 * third :]
