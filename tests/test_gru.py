"""vkcat.gru against torch's values, ONNX's node tests and the float64 reference."""

from __future__ import annotations

import itertools
import threading
import warnings
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch_cases
from conftest import ROOT
from torch_cases import CASES, Case

import vkcat
from vkcat.device.interface import Device
from vkcat.errors import InputError, ShapeError

GOLDEN = ROOT / "tests" / "golden" / "torch_gru.npz"


@lru_cache(maxsize=1)
def _golden() -> dict[str, np.ndarray[Any, Any]]:
    with np.load(GOLDEN) as file:
        return {name: file[name] for name in file.files}


def _run(case: Case, **options: Any) -> vkcat.GruOutput:
    given = torch_cases.arrays(case)
    return vkcat.gru(
        given.x,
        given.w_ih,
        given.w_hh,
        given.b_ih,
        given.b_hh,
        given.h0 if case.h0 else None,
        direction="both" if case.both else "forward",
        lengths=given.lengths if case.lengths else None,
        **options,
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_torch(device: Device, case: Case) -> None:
    out = _run(case, device=device)
    y, h = _golden()[f"{case.name}/y"], _golden()[f"{case.name}/h"]
    assert out.y.shape == y.shape
    assert out.h.shape == h.shape
    assert np.abs(out.y - y).max() < 1e-5
    assert np.abs(out.h - h).max() < 1e-5


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_torch_in_the_reference(case: Case) -> None:
    out = _run(case, device="reference")
    assert np.abs(out.y - _golden()[f"{case.name}/y"]).max() < 1e-6
    assert np.abs(out.h - _golden()[f"{case.name}/h"]).max() < 1e-6


@lru_cache(maxsize=1)
def _onnx_tests() -> dict[str, Any]:
    """ONNX's GRU node tests: built in memory from onnx 1.23 on, files before."""
    from onnx.backend.test import loader

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = loader.load_model_tests(kind="node")
    return {test.name: test for test in found if test.name.startswith("test_gru")}


def _onnx_data(test: Any) -> tuple[Any, list[Any], list[Any]]:
    """The node, its inputs and its outputs."""
    import onnx
    from onnx import numpy_helper

    if getattr(test, "data_sets", None) and test.model is not None:
        inputs, outputs = test.data_sets[0]
        return test.model.graph.node[0], list(inputs), list(outputs)
    folder = Path(test.model_dir)
    model = onnx.load(str(folder / "model.onnx"))

    def read(kind: str) -> list[Any]:
        names = sorted((folder / "test_data_set_0").glob(f"{kind}_*.pb"))
        return [numpy_helper.to_array(onnx.load_tensor(str(name))) for name in names]

    return model.graph.node[0], read("input"), read("output")


def _onnx_call(node: Any, inputs: list[Any], device: Device | str) -> dict[str, Any]:
    import onnx

    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
    names = ["X", "W", "R", "B", "sequence_lens", "initial_h"]
    # Inputs come in order; an empty name is an input left out.
    values = iter(inputs)
    given = {name: next(values) for name, used in itertools.zip_longest(names, node.input, fillvalue="") if used}
    known = {"hidden_size", "direction", "layout", "linear_before_reset"}
    assert attributes.keys() <= known, f"an attribute vkcat.gru does not have: {attributes.keys() - known}"
    out = vkcat.gru(
        given["X"],
        given["W"],
        given["R"],
        given.get("B"),
        h0=given.get("initial_h"),
        lengths=given.get("sequence_lens"),
        convention="onnx",
        direction=attributes.get("direction", b"forward").decode(),
        reset="after" if attributes.get("linear_before_reset", 0) else "before",
        batch_first=bool(attributes.get("layout", 0)),
        device=device,
    )
    return {name: value for name, value in zip(node.output, (out.y, out.h), strict=False) if name}


def test_onnx_node_tests(device: Device) -> None:
    tests = _onnx_tests()
    assert len(tests) >= 4, sorted(tests)
    for name, test in tests.items():
        node, inputs, outputs = _onnx_data(test)
        got = _onnx_call(node, inputs, device)
        wanted = [output for output in node.output if output]
        for output, expected in zip(wanted, outputs, strict=True):
            assert got[output].shape == expected.shape, name
            np.testing.assert_allclose(got[output], expected, rtol=test.rtol, atol=test.atol, err_msg=name)


@pytest.mark.parametrize("direction", ["forward", "reverse", "both"])
@pytest.mark.parametrize("reset", ["after", "before"])
def test_onnx_convention_with_lengths_and_state(vulkan_device: Device, direction: str, reset: str) -> None:
    rng = np.random.default_rng(3)
    T, B, I, H, D = 9, 4, 33, 65, 2 if direction == "both" else 1
    arguments = {
        "x": rng.standard_normal((T, B, I)),
        "w_ih": rng.uniform(-0.2, 0.2, (D, 3 * H, I)),
        "w_hh": rng.uniform(-0.2, 0.2, (D, 3 * H, H)),
        "b_ih": rng.uniform(-0.2, 0.2, (D, 6 * H)),
        "h0": rng.uniform(-1, 1, (D, B, H)),
    }
    options = {"convention": "onnx", "direction": direction, "reset": reset, "lengths": [9, 0, 4, 1]}
    got = vkcat.gru(**arguments, **options, device=vulkan_device)
    expected = vkcat.gru(**arguments, **options, device="reference")
    assert got.y.shape == (T, D, B, H)
    assert got.h.shape == (D, B, H)
    assert np.abs(got.y - expected.y).max() < 1e-5
    assert np.abs(got.h - expected.h).max() < 1e-5
    assert not got.y[:, :, 1].any(), "a sequence of no steps gives zeros"
    np.testing.assert_allclose(got.h[:, 1], arguments["h0"][:, 1], rtol=1e-6)
    split = np.split(arguments["b_ih"], 2, axis=1)
    same = vkcat.gru(**(arguments | {"b_ih": split[0]}), b_hh=split[1], **options, device=vulkan_device)
    assert same.y.tobytes() == got.y.tobytes()


def test_conventions_agree_on_the_same_cell(vulkan_device: Device) -> None:
    rng = np.random.default_rng(4)
    x, w, r = rng.standard_normal((5, 2, 3)), rng.standard_normal((12, 3)), rng.standard_normal((12, 4))
    torch_like = vkcat.gru(x, w, r, device=vulkan_device)

    def zrh(array: Any) -> Any:
        r, z, n = np.split(array, 3)
        return np.concatenate([z, r, n])[None]

    onnx_like = vkcat.gru(x, zrh(w), zrh(r), convention="onnx", reset="after", device=vulkan_device)
    assert onnx_like.y[:, 0].tobytes() == torch_like.y.tobytes()


def test_batch_first_and_unbatched(vulkan_device: Device) -> None:
    rng = np.random.default_rng(6)
    x, w, r = rng.standard_normal((5, 2, 3)), rng.standard_normal((12, 3)), rng.standard_normal((12, 4))
    plain = vkcat.gru(x, w, r, device=vulkan_device)
    swapped = vkcat.gru(x.swapaxes(0, 1), w, r, batch_first=True, device=vulkan_device)
    assert np.array_equal(swapped.y.swapaxes(0, 1), plain.y)
    one = vkcat.gru(x[:, 1], w, r, device=vulkan_device)
    assert np.array_equal(one.y, plain.y[:, 1])
    assert one.h.shape == (1, 4)


@pytest.mark.parametrize(("T", "B"), [(1, 1), (1, 3), (3, 1)])
def test_batch_first_of_one_step_or_stream(vulkan_device: Device, T: int, B: int) -> None:
    """Which axis is which cannot be told from sizes of 1, and must not be."""
    rng = np.random.default_rng(8)
    x, w, r = rng.standard_normal((T, B, 3)), rng.standard_normal((12, 3)), rng.standard_normal((12, 4))
    h0 = rng.standard_normal((1, B, 4))
    plain = vkcat.gru(x, w, r, h0=h0, device=vulkan_device)
    swapped = vkcat.gru(x.swapaxes(0, 1), w, r, h0=h0, batch_first=True, device=vulkan_device)
    assert plain.y.shape == (T, B, 4)
    assert swapped.y.shape == (B, T, 4)
    assert swapped.h.shape == plain.h.shape == (1, B, 4)
    assert np.array_equal(swapped.y.swapaxes(0, 1), plain.y)
    assert np.array_equal(swapped.h, plain.h)
    assert np.array_equal(plain.h[0], plain.y[-1])
    exact = vkcat.gru(x, w, r, h0=h0, device="reference")
    assert np.abs(plain.y - exact.y).max() < 1e-6


def test_strided_fortran_and_byte_swapped_arrays(vulkan_device: Device) -> None:
    rng = np.random.default_rng(7)
    x, w, r = (rng.standard_normal(shape).astype(np.float32) for shape in ((5, 2, 3), (12, 3), (12, 4)))
    plain = vkcat.gru(x, w, r, device=vulkan_device)
    strange = vkcat.gru(np.repeat(x, 2, axis=2)[:, :, ::2], np.asfortranarray(w), r.astype(">f4"), device=vulkan_device)
    assert strange.y.tobytes() == plain.y.tobytes()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"w_hh": np.zeros((12, 5))}, ShapeError, r"gru: w_hh\[0\]: expected \(3H, H\), got \(12, 5\)"),
        ({"w_ih": np.zeros((12, 7))}, ShapeError, r"gru: w_ih of l0.d0: expected \(12, 3\), got \(12, 7\)"),
        ({"b_ih": np.zeros(11)}, ShapeError, r"gru: b_ih\[0\]: expected \(12\), got \(11,\)"),
        ({"h0": np.zeros((1, 2, 5))}, ShapeError, r"gru: h0: expected \(1, 2, 4\), got \(1, 2, 5\)"),
        ({"x": np.zeros((0, 2, 3))}, ShapeError, r"gru: x: expected \(T, B, I\)"),
        ({"x": np.array(["a"])}, InputError, "gru: x: expected numbers"),
        ({"lengths": [1, 6]}, InputError, r"gru: lengths: expected 0 to 5, got \[1, 6\]"),
        (
            {"w_ih": [np.zeros((12, 3)), np.zeros((15, 4))], "w_hh": [np.zeros((12, 4)), np.zeros((15, 5))]},
            ShapeError,
            r"gru: w_hh: expected the same H in all arrays, got \[4, 5\]",
        ),
        ({"schedule": "lazy"}, InputError, "gru: schedule: expected one of eager, batched, replay, unrolled, got"),
        ({"backend": "cuda"}, InputError, "gru: backend: expected one of vulkan, kompute, got 'cuda'"),
        ({"w_ih": [], "w_hh": []}, ShapeError, "gru: w_ih: expected an array, or at least one in a list, got an empty"),
        ({"x": [[1, 2], [3]]}, ShapeError, "gru: x: expected an array, got rows of different lengths"),
        ({"lengths": [1]}, ShapeError, r"gru: lengths: expected integers \(2,\)"),
        ({"direction": "up"}, InputError, "gru: direction: expected 'forward'"),
        ({"convention": "tf"}, InputError, "gru: convention: expected 'torch' or 'onnx'"),
        ({"reset": "never"}, InputError, "gru: reset: expected 'after' or 'before'"),
        ({"direction": "both"}, ShapeError, "gru: w_ih: expected a multiple of 2 arrays"),
    ],
    ids=lambda value: str(next(iter(value))) if isinstance(value, dict) else "",
)
def test_mistakes_are_named(change: dict[str, Any], error: type[Exception], message: str) -> None:
    good = {"x": np.zeros((5, 2, 3)), "w_ih": np.zeros((12, 3)), "w_hh": np.zeros((12, 4))}
    with pytest.raises(error, match=message):
        vkcat.gru(**(good | change), device="reference")


def test_nested_lists_are_arrays(vulkan_device: Device) -> None:
    x, w, r = np.ones((2, 1, 3)), np.arange(9).reshape(3, 3) / 9, np.ones((3, 1))
    plain = vkcat.gru(x, w, r, device=vulkan_device)
    listed = vkcat.gru(x.tolist(), w.tolist(), r.tolist(), device=vulkan_device)
    assert listed.y.tobytes() == plain.y.tobytes()


def test_many_calls_leave_nothing_on_the_device(device: Device) -> None:
    """Whatever a call makes on a device is released with it."""
    x, w, r = np.ones((2, 1, 3)), np.ones((3, 3)), np.ones((3, 1))
    vkcat.gru(x, w, r, device=device)
    held = _held(device)
    for _ in range(5):
        vkcat.gru(x, w, r, device=device)
    assert _held(device) == held


def _held(device: Any) -> list[int]:
    if device.backend == "vulkan":
        return [len(device._core._owned), len(device._sets)]
    return [len(device._tensors), len(device._sequences), len(device._algorithms)]


def test_threads_on_one_device(device: Device) -> None:
    x, w, r = np.random.default_rng(0).standard_normal((20, 3, 4)), np.full((48, 4), 0.3), np.full((48, 16), 0.1)
    expected = vkcat.gru(x, w, r, device=device).y
    wrong: list[bool] = []

    def run() -> None:
        for schedule in ("replay", "batched", "eager") * 3:
            wrong.append(not np.array_equal(vkcat.gru(x, w, r, device=device, schedule=schedule).y, expected))

    threads = [threading.Thread(target=run) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) == 27
    assert not any(wrong)
