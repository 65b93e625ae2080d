"""Strided, Fortran-ordered and byte-swapped arrays handed in: what a user's array holds is what is computed on.

Wherever vkcat takes arrays, an array of any layout gives the bits of a plain one with the same numbers, and one of a
dtype that cannot be taken is refused by name.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from stream_models import CONFIGS, GRU, RING, config, stored

import vkcat
from vkcat import executor, presets
from vkcat.config import parse
from vkcat.device.interface import Device
from vkcat.errors import InputError, ModelError, ShapeError, VkcatError
from vkcat.stored import StoredModel
from vkcat.weights import save_model
from vkcat.words import device_words

Array = np.ndarray[Any, Any]


def _unaligned(array: Array) -> Array:
    made = np.ndarray(array.shape, array.dtype, bytearray(array.nbytes + 1), offset=1)
    made[...] = array
    return made


def _read_only(array: Array) -> Array:
    made = array.copy()
    made.flags.writeable = False
    return made


FORMS: dict[str, Callable[[Array], Array]] = {
    "fortran": np.asfortranarray,
    "backwards": lambda a: np.ascontiguousarray(a[..., ::-1])[..., ::-1],
    "upside down": lambda a: np.ascontiguousarray(a[::-1])[::-1],
    "every second": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "swapped bytes": lambda a: a.astype(a.dtype.newbyteorder()),
    "read-only": _read_only,
    "unaligned": _unaligned,
}


def _differing(given: Array | list[Array], result: Callable[..., Array]) -> list[str]:
    """The forms of the given arrays whose result is not, bit for bit, that of the arrays as they are."""
    arrays = given if isinstance(given, list) else [given]
    expected = result(*arrays).tobytes()
    return [name for name, form in FORMS.items() if result(*(form(array) for array in arrays)).tobytes() != expected]


def _drawn(*shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


GRU_SHAPES = (5, 2, 3), (12, 3), (12, 4), (12,), (12,), (1, 2, 4)


def test_gru_of_torch(device: Device) -> None:
    arrays = _drawn(*GRU_SHAPES)
    lengths = np.array([5, 3])
    assert _differing([*arrays, lengths], lambda *a: vkcat.gru(*a[:6], lengths=a[6], device=device).y) == []


def test_gru_of_onnx(vulkan_device: Device) -> None:
    arrays = _drawn((2, 5, 3), (1, 12, 3), (1, 12, 4), (1, 24))
    options: dict[str, Any] = {"convention": "onnx", "batch_first": True, "device": vulkan_device}
    assert _differing(arrays, lambda *a: vkcat.gru(*a, **options).y) == []


def test_a_view_taken_for_its_memory_is_found(vulkan_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests above can fail: here numbers are sent in the order they lie in memory."""

    def as_they_lie(tensor: Any, values: Array, panel: int) -> Any:
        return device_words(tensor, values.ravel(order="K").reshape(values.shape), panel)

    monkeypatch.setattr(executor, "device_words", as_they_lie)
    found = _differing(_drawn(*GRU_SHAPES), lambda *a: vkcat.gru(*a, device=vulkan_device).y)
    assert "fortran" in found


def test_tokens(device: Device) -> None:
    session = vkcat.Session(stored(CONFIGS["gru"]), batch=2, device=device)

    def read(tokens: Array, streams: Array) -> Array:
        session.reset(streams)
        session.step(tokens[:, 0])
        return session.prefill(tokens)

    tokens = np.random.default_rng(1).integers(0, 256, (2, 11))
    assert _differing([tokens, np.arange(2)], read) == []
    expected = read(tokens, np.arange(2)).tobytes()
    for dtype in (np.uint8, np.int16, np.uint64, ">i4", "<u2"):
        assert read(tokens.astype(dtype), np.arange(2, dtype=np.uint8)).tobytes() == expected
    session.close()


def test_features(device: Device) -> None:
    made = stored(config([GRU, RING], input=None, features={"size": 5}, output={"kind": "continuous", "size": 3}))
    session = vkcat.Session(made, batch=2, device=device)

    def read(x: Array) -> Array:
        session.reset()
        return session.read_features(x)

    (x,) = _drawn((2, 3, 5))
    assert _differing(x, read) == []
    assert _differing(x, lambda x: read(np.repeat(x, 4, axis=1))) == [], "in pieces"
    whole = np.rint(8 * x)
    expected = read(whole).tobytes()
    for dtype in (np.float64, np.float16, np.int64, np.int8, ">f8", ">i2"):
        assert read(whole.astype(dtype)).tobytes() == expected
    session.close()


def test_images(vulkan_device: Device) -> None:
    """Bytes are fractions of 255 whatever their layout, and other integers are not."""
    patches = {"rows": 2, "columns": 3, "side": 3, "channels": 2}
    session = vkcat.Session(stored(config([GRU], patches=patches)), batch=2, device=vulkan_device)

    def read(pixels: Array) -> Array:
        session.reset()
        return session.read_image(pixels)

    pixels = np.random.default_rng(2).integers(0, 256, (6, 9, 2), dtype=np.uint8)
    assert _differing(pixels, read) == []
    assert _differing((pixels / 255).astype(np.float32), read) == []
    assert _differing(np.stack([pixels, pixels[::-1]]).astype(np.int32), read) == []
    assert read(pixels.astype(np.int64)).tobytes() == read(pixels.astype(">f4")).tobytes()
    session.close()


def _sequences(device: Device | str, **keys: Any) -> vkcat.Sequences:
    value = {
        "format": "vkcat/1",
        "name": "s",
        "width": 5,
        "blocks": [{"kind": "gru", "hidden": 4, "direction": "both"}],
    }
    value |= {"output": {"kind": "continuous", "size": 2}, **keys}
    return vkcat.Sequences(presets.initial_model(parse(value), 3), batch=2, device=device)


def test_whole_sequences(vulkan_device: Device) -> None:
    sequences = _sequences(vulkan_device, features={"size": 3})
    lengths = np.array([4, 2])
    assert _differing([*_drawn((2, 4, 3)), lengths], sequences.run) == []
    sequences.close()
    sequences = _sequences(vulkan_device, input={"kind": "embedding", "symbols": 9})
    assert _differing([np.arange(8).reshape(2, 4), lengths], sequences.run) == []
    sequences.close()


def test_weights_of_a_model(device: Device, tmp_path: Path) -> None:
    """Given to a session, on a device and in the reference, or written to a folder and read from there."""
    made = stored(CONFIGS["gru"])
    forms = dict(zip(made.weights, itertools.cycle(FORMS.values()), strict=False))
    assert len(forms) >= len(FORMS)
    strange = StoredModel(made.config, {name: form(made.weights[name]) for name, form in forms.items()})
    save_model(tmp_path / "model", strange.config, strange.weights)
    read = vkcat.read_model(tmp_path / "model").weights
    assert all(read[name].tobytes() == array.tobytes() for name, array in made.weights.items())
    for where in (device, "reference"):
        outputs = []
        for model in (made, strange):
            session = vkcat.Session(model, device=where)
            outputs.append(session.prefill([1, 2, 3]))
            session.close()
        # Its products go to BLAS, which sums another layout's in another order.
        tolerance = 1e-14 if where == "reference" else 0
        assert np.abs(outputs[0] - outputs[1]).max() <= tolerance


@pytest.mark.parametrize(
    ("dtype", "got"),
    [(np.float64, "got float64"), (np.float16, "got F16"), (np.int64, "got int64"), (bool, "got bool")],
)
def test_weights_that_no_folder_holds_are_not_written(tmp_path: Path, dtype: Any, got: str) -> None:
    """In float16 matrices may be, not the rest."""
    made = stored(CONFIGS["gru"])
    with pytest.raises(ModelError, match=f"expected dtype F32.*, {got}"):
        save_model(tmp_path / "m", made.config, {name: a.astype(dtype) for name, a in made.weights.items()})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("dtype", [np.int64, bool])
@pytest.mark.parametrize("where", ["device", "reference"])
def test_weights_that_are_no_numbers_of_the_model_are_refused(vulkan_device: Device, where: str, dtype: Any) -> None:
    made = stored(CONFIGS["gru"])
    strange = StoredModel(made.config, {name: a.astype(dtype) for name, a in made.weights.items()})
    with pytest.raises(InputError, match=r"weight: expected float32 \(256, 21\), got (int64|bool)"):
        vkcat.Session(strange, device=vulkan_device if where == "device" else "reference")


SCALAR, RAGGED = np.array(1), [[[1]], [[1], [2, 3]]]
NUMBERS = np.ones((2, 3, 5))


@pytest.mark.parametrize(
    ("use", "error", "message"),
    [
        (lambda s, f, q: s.prefill(SCALAR), InputError, "tokens: expected 1 sequences of ids, got one number"),
        (lambda s, f, q: s.step(SCALAR), InputError, r"step: tokens: expected \(1,\), got \(\)"),
        (lambda s, f, q: s.prefill(RAGGED[1:]), ShapeError, "tokens: expected an array, got rows of different lengths"),
        (lambda s, f, q: s.prefill([[[1, 2], [3, 4]]]), InputError, r"got 1 of shape \(2, 2\)"),
        (lambda s, f, q: s.prefill(np.array([True])), InputError, "tokens: expected integers, got an array of bool"),
        (lambda s, f, q: s.prefill(np.array([1.0])), InputError, "tokens: expected integers, got an array of float64"),
        (lambda s, f, q: s.prefill(np.array([1 << 63], np.uint64)), InputError, "expected 0 to 255, got 922337203685"),
        (lambda s, f, q: f.read_features(SCALAR), InputError, r"features: expected \(2, T, 5\), got \(\)"),
        (lambda s, f, q: f.read_features(NUMBERS > 0), InputError, "features: expected numbers, got an array of bool"),
        (lambda s, f, q: f.read_features(1e39 * NUMBERS), InputError, "numbers that float32 can hold, got 1e\\+39"),
        (lambda s, f, q: q.run(1e39 * NUMBERS[..., :3]), InputError, "numbers that float32 can hold, got 1e\\+39"),
        (lambda s, f, q: q.run(NUMBERS[..., :3] > 0), InputError, "features: expected numbers, got an array of bool"),
        (lambda s, f, q: q.run(SCALAR), InputError, r"features: expected \(2, T, 3\), got \(\)"),
        (
            lambda s, f, q: q.run(NUMBERS[..., :3], RAGGED),
            ShapeError,
            "sequences: lengths: expected an array, got rows",
        ),
        (
            lambda s, f, q: q.run(NUMBERS[..., :3], [1.0, 2.0]),
            InputError,
            "lengths: expected integers, got an array of",
        ),
        (
            lambda s, f, q: q.run(NUMBERS[..., :3], [True, False]),
            InputError,
            "lengths: expected integers, got an array",
        ),
    ],
)
def test_arrays_of_models_that_cannot_be_taken_are_named(
    use: Callable[..., Any], error: type[VkcatError], message: str
) -> None:
    features = stored(config([GRU], input=None, features={"size": 5}, output={"kind": "continuous", "size": 3}))
    session = vkcat.Session(stored(CONFIGS["gru"]), device="reference")
    with pytest.raises(error, match=message):
        use(
            session, vkcat.Session(features, batch=2, device="reference"), _sequences("reference", features={"size": 3})
        )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"w_ih": SCALAR}, ShapeError, r"gru: w_ih\[0\]: expected \(12, I\), got \(\)"),
        ({"w_hh": SCALAR}, ShapeError, r"gru: w_hh\[0\]: expected \(3H, H\), got \(\)"),
        ({"b_ih": SCALAR}, ShapeError, r"gru: b_ih\[0\]: expected \(12\), got \(\)"),
        ({"h0": SCALAR}, ShapeError, r"gru: h0: expected \(1, 2, 4\), got \(\)"),
        ({"x": SCALAR}, ShapeError, r"gru: x: expected \(T, B, I\)"),
        ({"x": np.ones((5, 2, 3)) > 0}, InputError, "gru: x: expected numbers, got an array of bool"),
        ({"lengths": RAGGED}, ShapeError, "gru: lengths: expected an array, got rows of different lengths"),
        ({"lengths": SCALAR}, ShapeError, r"gru: lengths: expected integers \(2,\), got \(\)"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_arrays_of_gru_that_cannot_be_taken_are_named(
    change: dict[str, Any], error: type[VkcatError], message: str
) -> None:
    good = dict(zip(("x", "w_ih", "w_hh", "b_ih", "b_hh", "h0"), _drawn(*GRU_SHAPES), strict=True))
    with pytest.raises(error, match=message):
        vkcat.gru(**(good | change), device="reference")
