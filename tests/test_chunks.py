"""Sequences read many steps at a time: the same bits however they are cut, those of single steps but for rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from stream_models import CONFIGS, DELTA, GRU, NO_LIMIT_MS, RING, config, stored

import vkcat
from vkcat import chunks, presets
from vkcat.config import parse
from vkcat.device.interface import Device
from vkcat.graph import Graph, Role, Tensor
from vkcat.model import build, with_rows
from vkcat.model.interface import fused_model
from vkcat.plan import Packing, schedule
from vkcat.validate import validate_model

Array = np.ndarray[Any, Any]
READS_ROWS = ["gru", "ring", "delta", "experts"]


def _tokens(batch: int, steps: int) -> Array:
    return np.random.default_rng(steps).integers(0, 256, (batch, steps))


def _outputs(device: Device, name: str, rows: Any, batch: int, **options: Any) -> Array:
    session = vkcat.Session(stored(CONFIGS[name]), batch=batch, device=device, **options)
    outputs = session.prefill(rows)
    session.close()
    return outputs


@pytest.mark.parametrize("name", READS_ROWS)
def test_every_node_over_rows(vulkan_device: Device, name: str) -> None:
    made = stored(CONFIGS[name])
    plain = with_rows(build(made.config, 3), 5)
    assert any(graph.endswith(" x 5") for graph in plain.graphs)
    for model in (plain, fused_model(vulkan_device.info, plain)):
        results = list(validate_model(vulkan_device, model, made.weights, "replay"))
        assert [f"{r.op} {r.case}: {r.problem}" for r in results if not r.passed] == []


@pytest.mark.parametrize("steps", [8, 17, 100])
@pytest.mark.parametrize("name", READS_ROWS)
def test_numbers_are_those_of_single_steps(vulkan_device: Device, name: str, steps: int) -> None:
    """The window of the ring is shorter than a sequence, and longer than its beginning."""
    tokens = _tokens(2, steps)
    expected = _outputs(vulkan_device, name, tokens, 2, chunked=False)
    got = _outputs(vulkan_device, name, tokens, 2, submit_limit_ms=NO_LIMIT_MS)
    # Those of a delta memory are in the same order.
    assert name == "delta" or got.tobytes() != expected.tobytes(), "sums in the same order: was it read in pieces?"
    assert np.abs(got - expected).max() <= 1e-6 * np.abs(expected).max()


@pytest.mark.parametrize("name", READS_ROWS)
def test_however_it_is_cut_the_bits_are_the_same(
    vulkan_device: Device, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    tokens, outputs = _tokens(3, 70), set()
    for sizes in [(1,), (2,), (1, 2, 16), (1, 2, 16, 64)]:
        monkeypatch.setattr(chunks, "SIZES", sizes)
        outputs.add(_outputs(vulkan_device, name, tokens, 3, submit_limit_ms=NO_LIMIT_MS).tobytes())
    assert len(outputs) == 1


def test_streams_of_other_lengths_and_in_several_calls(vulkan_device: Device) -> None:
    rows = [list(range(40)), [], list(range(100, 121)), [7]]
    session = vkcat.Session(stored(CONFIGS["ring"]), batch=4, device=vulkan_device)
    reference = vkcat.Session(stored(CONFIGS["ring"]), batch=4, device="reference")
    for given in (rows, [[], *rows[:3]], [[1], [2], [3], [4]], rows):
        outputs, expected = session.prefill(given), reference.prefill(given)
        assert np.abs(outputs - expected).max() < 1e-4
    assert (session.generate(5) == reference.generate(5)).all()
    session.reset([2])
    reference.reset([2])
    assert np.abs(session.prefill(rows) - reference.prefill(rows)).max() < 1e-4
    session.close()


@pytest.mark.parametrize("name", READS_ROWS)
def test_streams_begin_anew_in_pieces_as_in_steps(vulkan_device: Device, name: str) -> None:
    """Some go on, some were reset, and one of these is given nothing."""
    tokens, outputs = _tokens(4, 20).tolist(), []
    for chunked in (True, False):
        session = vkcat.Session(stored(CONFIGS[name]), batch=4, device=vulkan_device, chunked=chunked)
        session.prefill([row[:length] for row, length in zip(tokens, (17, 3, 0, 11), strict=True)])
        session.reset([1, 3])
        session.prefill([row[:length] for row, length in zip(tokens, (9, 20, 12, 0), strict=True)])
        outputs.append(session.prefill([[1], [2], [3], [4]]))
        session.close()
    assert np.abs(outputs[0] - outputs[1]).max() <= 1e-6 * np.abs(outputs[1]).max()


@pytest.mark.parametrize("name", ["ring", "delta"])
def test_a_held_stream_keeps_every_bit(vulkan_device: Device, name: str) -> None:
    session = vkcat.Session(stored(CONFIGS[name]), batch=2, device=vulkan_device)
    session.prefill([[1, 2, 3], [4, 5, 6]])
    states = session.model.shared.kept.values()
    before = [session._steps.read_state(state)[1].tobytes() for state in states]
    session.prefill([list(range(50)), []])
    assert [session._steps.read_state(state)[1].tobytes() for state in states] == before
    session.close()


def test_features_give_the_output_of_every_step(vulkan_device: Device) -> None:
    made = stored(config([GRU, RING], input=None, features={"size": 5}, output={"kind": "continuous", "size": 3}))
    x = np.random.default_rng(1).standard_normal((2, 37, 5)).astype(np.float32)
    session = vkcat.Session(made, batch=2, device=vulkan_device, submit_limit_ms=NO_LIMIT_MS)
    expected = vkcat.Session(made, batch=2, device="reference").read_features(x)
    assert np.abs(session.read_features(x) - expected).max() < 1e-5
    assert session._chunks is not None
    assert ("features", 16) in session._chunks._graphs
    session.close()


def test_an_image_in_pieces_is_patch_by_patch(vulkan_device: Device) -> None:
    """Two images, one after the other, of streams of which one has read something before."""
    patches = {"rows": 4, "columns": 5, "side": 3, "channels": 1}
    made = stored(config([GRU, DELTA, RING], modulation={"context": 2}, patches=patches))
    pixels, outputs = np.random.default_rng(0).standard_normal((2, 12, 15, 1)), []
    for chunked in (True, False):
        session = vkcat.Session(made, batch=2, device=vulkan_device, chunked=chunked)
        session.prefill([[1], []])
        outputs.append([session.read_image(pixels), session.prefill([[5], [6]]), session.read_image(pixels[::-1])])
        assert (session._chunks is not None and ("patches", 2) in session._chunks._graphs) == chunked
        session.close()
    for got, expected in zip(*outputs, strict=True):
        assert np.abs(got - expected).max() <= 1e-6 * np.abs(expected).max()


def test_every_node_over_rows_of_patches(vulkan_device: Device) -> None:
    patches = {"rows": 2, "columns": 2, "side": 3, "channels": 1}
    made = stored(config([GRU, DELTA], patches=patches))
    model = with_rows(build(made.config, 3), 5)
    assert "patches x 5" in model.graphs
    results = list(validate_model(vulkan_device, model, made.weights, "replay"))
    assert [f"{r.op} {r.case}: {r.problem}" for r in results if not r.passed] == []


def test_a_piece_keeps_within_the_limit(vulkan_device: Device) -> None:
    session = vkcat.Session(stored(CONFIGS["gru"]), device=vulkan_device, submit_limit_ms=1e-6)
    session.prefill(_tokens(1, 20))
    assert session._chunks is not None
    assert session._chunks.next("tokens", 20, 1) == 1
    session.close()


@pytest.mark.parametrize(("batch", "greatest"), [(16, 64), (17, 16), (512, 2), (513, 0)])
def test_rows_are_not_too_many(vulkan_device: Device, batch: int, greatest: int) -> None:
    """Beyond half of the rows that a graph may have, each step is a graph's again."""
    made = stored(config([{**GRU, "hidden": 3}], "plain"))
    session = vkcat.Session(made, batch=batch, device=vulkan_device, submit_limit_ms=NO_LIMIT_MS)
    reference = vkcat.Session(made, batch=batch, device="reference")
    tokens = _tokens(batch, 90)
    assert np.abs(session.prefill(tokens) - reference.prefill(tokens)).max() < 1e-5
    assert session._chunks is not None
    assert max((count for _, count in session._chunks._graphs), default=0) == greatest
    session.close()


@pytest.mark.parametrize("name", ["gru", "all"])
def test_each_step_is_told_of(vulkan_device: Device, name: str) -> None:
    """Telemetry needs every step; so does a block that cannot read several."""
    records: list[Any] = []
    session = vkcat.Session(stored(CONFIGS[name]), device=vulkan_device, on_step=records.append)
    session.prefill(_tokens(1, 20))
    assert len(records) == 20
    session.close()


def test_recurrences_of_few_units_are_one_dispatch(vulkan_device: Device) -> None:
    kernels = {}
    for hidden in (16, 300):
        made = stored(config([{**GRU, "hidden": hidden}], "plain", norm="none"))
        model = fused_model(vulkan_device.info, with_rows(build(made.config), 16))
        kernels[hidden] = [node.kernel.name for node in model.graphs["tokens x 16"].nodes]
    assert kernels[16].count("gru_sequence") == 1
    assert "gru_recurrence" not in kernels[16]
    assert kernels[300].count("gru_recurrence") == 16


@pytest.mark.parametrize("directions", [["reverse"], ["both", "forward"]])
def test_whole_sequences_of_a_model(vulkan_device: Device, directions: list[str]) -> None:
    blocks = [{"kind": "gru", "hidden": 4 + at, "direction": each} for at, each in enumerate(directions)]
    value = {"format": "vkcat/1", "name": "sequences", "width": 5, "blocks": blocks}
    value |= {"input": {"kind": "embedding", "symbols": 9}, "output": {"kind": "token"}}
    made = presets.initial_model(parse(value), 3)
    rng, lengths = np.random.default_rng(2), [40, 0, 21]
    tokens = rng.integers(0, 9, (3, 40))
    on_device = vkcat.Sequences(made, batch=3, device=vulkan_device)
    expected = vkcat.Sequences(made, batch=3, device="reference").run(tokens, lengths)
    for _ in range(2):
        assert np.abs(on_device.run(tokens, lengths) - expected).max() < 1e-6
    on_device.close()


@pytest.mark.parametrize("direction", ["forward", "both"])
def test_a_long_gru(vulkan_device: Device, direction: str) -> None:
    rng = np.random.default_rng(3)
    D, T, B, I, H = (2 if direction == "both" else 1), 300, 3, 5, 7
    widths = [I, D * H]
    w = [
        [rng.uniform(-0.4, 0.4, shape(width)).astype(np.float32) for width in widths for _ in range(D)]
        for shape in (lambda n: (3 * H, n), lambda n: (3 * H, H), lambda n: (3 * H,), lambda n: (3 * H,))
    ]
    x, h0 = rng.standard_normal((T, B, I)).astype(np.float32), rng.standard_normal((2 * D, B, H)).astype(np.float32)
    got = vkcat.gru(x, *w, h0, lengths=[300, 1, 77], direction=direction, device=vulkan_device)
    expected = vkcat.gru(x, *w, h0, lengths=[300, 1, 77], direction=direction, device="reference")
    assert np.abs(got.y - expected.y).max() < 1e-5
    assert np.abs(got.h - expected.h).max() < 1e-5


def test_a_graph_that_is_added_writes_nothing_unforeseen() -> None:
    """What graphs before it only read has no barrier there against a later write."""
    memory = Tensor("ring", (1, 4, 4), "float32", Role.MEMORY)
    other = Tensor("other", (1, 4, 4), "float32", Role.MEMORY)
    t = Tensor("t", (1,), "uint32", Role.INPUT)
    mode, slopes = Tensor("mode", (1,), "uint32", Role.INPUT), Tensor("slopes", (1,), "float32", Role.WEIGHT)
    q = Tensor("q", (1, 4), "float32", Role.INPUT)
    reads = Graph("reads")
    (o,) = reads.add("ring_attention", "a", q=q, k_ring=memory, v_ring=other, t=t, slopes=slopes)
    reads.output(o)
    writes = Graph("writes")
    writes.add("ring_write", "w", k=q, v=q, t=t, mode=mode, k_ring=memory, v_ring=other)
    packing = Packing(64, 1 << 20)
    with pytest.raises(ValueError, match="writes: an added graph writes what graphs before it only read"):
        schedule([writes], packing, schedule([reads], packing))
    assert schedule([reads], packing, schedule([writes], packing)).steps.keys() == {"reads", "writes"}
