"""Barriers and offsets against brute force, on random graphs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vkcat.config import EmbeddingInput, GruBlock, Stack, TokenOutput, TransducerConfig
from vkcat.device.interface import Memory
from vkcat.errors import DeviceError, ShapeError
from vkcat.graph import Graph, Role, Tensor
from vkcat.model import build_transducer
from vkcat.plan import Packing, Region, schedule
from vkcat.plan.hazards import barriers

ARENA = Packing(alignment=64, max_buffer=1 << 30)
WHOLE = Packing(alignment=64, max_buffer=1 << 30, offsets=False)


def _config(layers: int = 2, reset: str = "after") -> TransducerConfig:
    blocks = tuple(GruBlock(hidden=63, reset=reset) for _ in range(layers))
    source = EmbeddingInput(symbols=("a", "b", "</s>"), end="</s>")
    target = EmbeddingInput(symbols=("<s>", "</s>", "x"))
    return TransducerConfig(
        name="test",
        encoder=Stack(input=source, width=5, blocks=blocks),
        decoder=Stack(input=target, width=7, blocks=blocks, output=TokenOutput(start="<s>", end="</s>")),
    )


regions = st.builds(Region, st.integers(0, 2), st.integers(0, 6).map(lambda n: 4 * n), st.sampled_from([4, 8, 12]))
access = st.tuples(st.lists(regions, max_size=3), st.lists(regions, max_size=2))


@given(st.lists(access, max_size=8), access)
@settings(max_examples=300, deadline=None)
def test_barriers_order_every_conflict_and_no_other(accesses: list, before: tuple) -> None:  # type: ignore[type-arg]
    found = barriers(accesses, before)
    every = [before, *accesses]
    for late in range(1, len(every)):
        reads, writes = every[late]
        for early in range(late):
            early_reads, early_writes = every[early]
            after_write = any(w.overlaps(r) for w in early_writes for r in (*reads, *writes))
            after_read = any(r.overlaps(w) for r in early_reads for w in writes)
            if after_write or after_read:
                # Some barrier stands between the two; the first of them makes the write visible.
                between = [found[at - 1] for at in range(early + 1, late + 1) if found[at - 1] is not None]
                assert between
                assert set(early_writes) <= set(between[0] or ()) or not after_write
    for at, barrier in enumerate(found):
        if barrier is not None:
            start = max((i + 1 for i in range(at) if found[i] is not None), default=0)
            pending = ([before] if not any(b is not None for b in found[:at]) else []) + list(accesses[start:at])
            if start > 0:
                pending.append(accesses[start - 1])
            reads, writes = accesses[at]
            conflict = any(
                any(w.overlaps(r) for w in ew for r in (*reads, *writes))
                or any(r.overlaps(w) for r in er for w in writes)
                for er, ew in pending
            )
            assert conflict, "a barrier without a hazard"


@pytest.mark.parametrize("packing", [ARENA, WHOLE], ids=["arena", "whole_buffers"])
@pytest.mark.parametrize("reset", ["after", "before"])
def test_model_tensors_that_live_together_do_not_overlap(packing: Packing, reset: str) -> None:
    model = build_transducer(_config(reset=reset), batch=3)
    plan = schedule(model.graphs.values(), packing)
    for graph in model.graphs.values():
        for at in range(len(graph.nodes)):
            live = [
                tensor
                for tensor in graph.tensors()
                if tensor.role is not Role.TEMPORARY
                or tensor in graph.carries.values()
                or (
                    min(i for i, n in enumerate(graph.nodes) if tensor in n.tensors.values())
                    <= at
                    <= max(i for i, n in enumerate(graph.nodes) if tensor in n.tensors.values())
                )
            ]
            for parity in (0, 1):
                for i, one in enumerate(live):
                    for other in live[i + 1 :]:
                        assert not plan.regions[one][parity].overlaps(plan.regions[other][parity])


@pytest.mark.parametrize("packing", [ARENA, WHOLE], ids=["arena", "whole_buffers"])
def test_regions_fit_their_buffers_and_alignment(packing: Packing) -> None:
    plan = schedule(build_transducer(_config(), batch=3).graphs.values(), packing)
    for tensor, both in plan.regions.items():
        for region in both:
            assert region.size >= tensor.nbytes
            assert region.offset % packing.alignment == 0
            assert region.offset + region.size <= plan.buffers[region.buffer].nbytes


def test_states_swap_and_inputs_alternate() -> None:
    model = build_transducer(_config(layers=1), batch=1)
    plan = schedule(model.graphs.values(), ARENA)
    (state, new) = next((s, n) for s, n in model.graphs["decode"].carries.items() if s.dtype == "float32")
    assert plan.regions[state] == tuple(reversed(plan.regions[new]))
    assert plan.regions[model.ids][0] != plan.regions[model.ids][1]
    assert plan.buffers[plan.regions[model.ids][0].buffer].memory is Memory.UPLOAD
    assert plan.buffers[plan.regions[model.chosen][0].buffer].memory is Memory.READBACK


def test_arena_is_smaller_than_its_tensors() -> None:
    graph = Graph("chain")
    x = Tensor("x", (1, 256), "float32", Role.INPUT)
    w = Tensor("w", (256, 256), "float32", Role.WEIGHT)
    bias = Tensor("bias", (256,), "float32", Role.WEIGHT)
    for at in range(6):
        (x,) = graph.add("linear", f"l{at}", x=x, w=w, bias=bias)
    graph.output(x)
    plan = schedule([graph], ARENA)
    temporaries = [t for t in graph.tensors() if t.role is Role.TEMPORARY and t not in graph.outputs]
    arena = plan.buffers[plan.regions[temporaries[0]][0].buffer].nbytes
    assert len(temporaries) == 5
    assert arena == 2 * 1024


def test_independent_dispatches_have_no_barrier_between() -> None:
    graph = Graph("two")
    x = Tensor("x", (1, 8), "float32", Role.INPUT)
    w = Tensor("w", (8, 8), "float32", Role.WEIGHT)
    bias = Tensor("bias", (8,), "float32", Role.WEIGHT)
    (a,) = graph.add("linear", "a", x=x, w=w, bias=bias)
    (b,) = graph.add("linear", "b", x=x, w=w, bias=bias)
    graph.add("linear", "c", x=a, w=w, bias=bias)
    graph.output(b)
    steps = schedule([graph], ARENA).steps["two"]
    for step in steps:
        assert step.dispatches[1].barrier is None
        assert step.dispatches[2].barrier is not None


def test_a_state_that_is_not_carried_is_refused() -> None:
    graph = Graph("g")
    ids = Tensor("ids", (1,), "uint32", Role.STATE)
    table = Tensor("table", (3, 4), "float32", Role.WEIGHT)
    graph.add("embedding", "e", ids=ids, table=table)
    with pytest.raises(ValueError, match="ids is used but not carried"):
        schedule([graph], ARENA)


def test_a_tensor_larger_than_a_buffer_is_refused() -> None:
    graph = Graph("g")
    ids = Tensor("ids", (1,), "uint32", Role.INPUT)
    table = Tensor("table", (1 << 20, 1024), "float32", Role.WEIGHT)
    graph.add("embedding", "e", ids=ids, table=table)
    with pytest.raises(DeviceError, match=r"table: expected at most 1073741824 bytes"):
        schedule([graph], ARENA)


def test_many_weights_go_to_several_buffers() -> None:
    graph = Graph("g")
    x = Tensor("x", (1, 64), "float32", Role.INPUT)
    for at in range(5):
        w = Tensor(f"w{at}", (64, 64), "float32", Role.WEIGHT)
        (x,) = graph.add("linear", f"l{at}", x=x, w=w, bias=Tensor(f"b{at}", (64,), "float32", Role.WEIGHT))
    plan = schedule([graph], Packing(alignment=64, max_buffer=40_000))
    weights = {plan.regions[t][0].buffer for t in graph.tensors() if t.role is Role.WEIGHT}
    assert len(weights) >= 3
    assert all(spec.nbytes <= 40_000 for spec in plan.buffers)


def test_shapes_that_disagree_are_named() -> None:
    graph = Graph("g")
    x = Tensor("x", (1, 8), "float32", Role.INPUT)
    w = Tensor("w", (8, 9), "float32", Role.WEIGHT)
    bias = Tensor("bias", (8,), "float32", Role.WEIGHT)
    with pytest.raises(ShapeError, match=r"linear: w: expected \(8, 8\), got \(8, 9\)"):
        graph.add("linear", "a", x=x, w=w, bias=bias)
