"""Schedules and backends give the same bits; replay makes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stream_models import CONFIGS

import vkcat
from vkcat.device.interface import Device, Dispatch
from vkcat.device.vulkan.api import api
from vkcat.errors import InputError
from vkcat.executor import Executor, Steps, Values
from vkcat.graph import Graph, Role, Tensor
from vkcat.model import build, build_stream
from vkcat.schedules import SCHEDULES

WORDS = ["vulkan", "a", "queue", "semaphores"]


class _Recorded:
    """An executor that keeps every output it gave."""

    def __init__(self, executor: Executor, seen: list[np.ndarray[Any, Any]]) -> None:
        self._executor, self._seen = executor, seen
        self.write, self.step, self.close = executor.write, executor.step, executor.close

    def read(self, tensor: Any) -> Any:
        values = self._executor.read(tensor)
        self._seen.append(values)
        logits = next(t for t in self._executor.plan.regions if t.name == "decoder.output.y")
        self._seen.append(self._executor.read(logits))
        return values


def _transducer(folder: Path, batch: int = 1) -> tuple[Any, Any]:
    """Graphs and weights."""
    stored = vkcat.read_model(folder)
    return build(stored.config, batch), stored.weights


def _schedules(device: Device) -> list[str]:
    return [schedule for schedule in SCHEDULES if device.rewrites or schedule != "unrolled"]


def _trace(device: Device, folder: Path, schedule: str) -> list[np.ndarray[Any, Any]]:
    model, weights = _transducer(folder, len(WORDS))
    seen: list[np.ndarray[Any, Any]] = []

    def runner(graphs: Sequence[Graph], values: Values) -> Steps:
        return _Recorded(Executor(device, graphs, schedule, values=values), seen)

    session = vkcat.Transducer(model, weights, runner)  # type: ignore[arg-type]
    session.transduce(WORDS)
    session.close()
    return seen


def test_logits_are_bit_identical_in_every_schedule_and_backend(both_backends: list[Device], g2p: Path) -> None:
    traces = [_trace(device, g2p, schedule) for device in both_backends for schedule in _schedules(device)]
    assert len(traces[0]) > 10
    for trace in traces[1:]:
        assert [a.tobytes() for a in trace] == [a.tobytes() for a in traces[0]]


@pytest.mark.parametrize("reset", ["after", "before"])
def test_gru_is_bit_identical_in_every_schedule_and_backend(both_backends: list[Device], reset: str) -> None:
    rng = np.random.default_rng(5)
    x = rng.standard_normal((7, 3, 63))
    sizes = [(63, 100), (100, 100)]
    w_ih = [rng.uniform(-0.2, 0.2, (300, i)) for i, _ in sizes]
    w_hh = [rng.uniform(-0.2, 0.2, (300, h)) for _, h in sizes]
    outs = [
        vkcat.gru(x, w_ih, w_hh, reset=reset, device=device, schedule=schedule)
        for device in both_backends
        for schedule in _schedules(device)
    ]
    for out in outs[1:]:
        assert out.y.tobytes() == outs[0].y.tobytes()
        assert out.h.tobytes() == outs[0].h.tobytes()


def _spy(monkeypatch: pytest.MonkeyPatch, calls: list[str]) -> None:
    """Note every call that allocates, creates, records or binds, in both forms that the package has."""
    vk = api()
    prefixes = ("vkAllocate", "vkCreate", "vkCmd", "vkBegin", "vkEnd", "vkUpdate", "vkMap", "vkFree", "vkDestroy")
    for name in dir(vk):
        if name.startswith(prefixes) and callable(getattr(vk, name)):
            monkeypatch.setattr(vk, name, lambda *args, _name=name: calls.append(_name))


def test_replay_allocates_records_and_binds_nothing(
    vulkan_device: Device, g2p: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, weights = _transducer(g2p)
    executor = Executor(vulkan_device, list(model.graphs.values()), "replay")
    for tensor, values in model.values(weights).items():
        executor.write(tensor, values)
    ones = np.ones(1, np.uint32)
    executor.write(model.token, ones)
    executor.write(model.ids, ones)
    calls: list[str] = []
    with monkeypatch.context() as patch:
        _spy(patch, calls)
        for graph in model.graphs:
            for _ in range(5):
                executor.write(model.mode, ones)
                executor.step(graph)
                executor.read(model.chosen)
    assert calls == []
    executor.close()


def test_the_spy_sees_what_batched_does(vulkan_device: Device, g2p: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail: a schedule that records each step is seen."""
    model, _ = _transducer(g2p)
    executor = Executor(vulkan_device, list(model.graphs.values()), "batched")
    recording = vulkan_device.recording()
    calls: list[str] = []
    with monkeypatch.context() as patch:
        _spy(patch, calls)
        recording.record(executor.commands["decode"][0])
    recording.close()
    assert "vkBeginCommandBuffer" in calls
    assert "vkCmdDispatch" in calls
    executor.close()


def test_kompute_replay_makes_no_sequence(both_backends: list[Device], g2p: Path) -> None:
    if len(both_backends) == 1:
        pytest.skip("kp is not installed")
    device: Any = both_backends[1]
    model, weights = _transducer(g2p)
    executor = Executor(device, list(model.graphs.values()), "replay")
    for tensor, values in model.values(weights).items():
        executor.write(tensor, values)
    executor.write(model.token, np.ones(1, np.uint32))
    executor.write(model.mode, np.ones(1, np.uint32))
    real = device.manager

    class _Closed:
        """A manager that makes nothing any more."""

        def __getattr__(self, name: str) -> Any:
            raise AssertionError(f"replay called Manager.{name}")

    device.manager = _Closed()
    try:
        for _ in range(4):
            executor.step("decode")
            executor.read(model.chosen)
    finally:
        device.manager = real
        executor.close()


def test_streams_of_a_batch_do_not_touch_each_other(vulkan_device: Device, g2p: Path) -> None:
    together = vkcat.load(g2p, vulkan_device, batch=4)
    alone = vkcat.load(g2p, vulkan_device, batch=1)
    assert together.transduce(WORDS) == [alone.transduce([word])[0] for word in WORDS]
    changed = [*WORDS[:3], "xylophones"]
    assert together.transduce(changed)[:3] == together.transduce(WORDS)[:3]
    together.close()
    alone.close()


def test_wrong_values_leave_a_device_as_it_was(device: Device) -> None:
    graph = Graph("g")
    x, w = Tensor("x", (1, 5), "float32", Role.INPUT), Tensor("w", (3, 5), "float32", Role.WEIGHT)
    bias = Tensor("bias", (3,), "float32", Role.WEIGHT)
    (y,) = graph.add("linear", "product", x=x, w=w, bias=bias)
    graph.outputs.append(y)
    values = {bias: np.arange(3, dtype=np.float32), w: np.ones((3, 5), np.float32)}
    with pytest.raises(InputError, match=r"w: expected float32 \(3, 5\), got float32 \(3, 4\)"):
        Executor(device, [graph], values={**values, w: np.ones((3, 4), np.float32)})
    with closing(Executor(device, [graph], values=values)) as executor:
        executor.write(x, np.ones((1, 5), np.float32))
        executor.step("g")
        assert executor.read(y).tolist() == [[5, 6, 7]]


def _steps(executor: Executor, graph: str) -> tuple[list[Dispatch], list[Dispatch]]:
    even, odd = ([one for one in step if isinstance(one, Dispatch)] for step in executor.commands[graph])
    return even, odd


def test_even_and_odd_steps_share_what_is_the_same_in_both(device: Device) -> None:
    graphs = list(build_stream(CONFIGS["experts"], 1).graphs.values())
    with closing(Executor(device, graphs)) as executor:
        pairs = [pair for graph in graphs for pair in zip(*_steps(executor, graph.name), strict=True)]
    assert all((even is odd) == (even.slices == odd.slices) for even, odd in pairs)
    assert 0 < sum(even is odd for even, odd in pairs) < len(pairs)


def test_kompute_compiles_for_odd_steps_when_they_come(both_backends: list[Device], g2p: Path) -> None:
    if len(both_backends) == 1:
        pytest.skip("kp is not installed")
    model, _ = _transducer(g2p)
    graph = model.graphs["encode"]
    with closing(Executor(both_backends[1], [graph], "batched")) as executor:
        executor.step("encode")
        even, odd = _steps(executor, "encode")
        apart = [dispatch for dispatch in odd if dispatch not in even]
        assert all(dispatch.prepared.compiled for dispatch in even)
        assert apart
        assert not any(dispatch.prepared.compiled for dispatch in apart)
        executor.step("encode")
        assert all(dispatch.prepared.compiled for dispatch in odd)
