"""Streams: prefill and steps, saved states, seeds, independence, exact starts of the depth policies, long runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from stream_models import ALL, CONFIGS, DELTA, EXPERTS, GRU, RING, SAMPLING, config, draw_tokens, stored

import vkcat
from vkcat.config import StreamConfig
from vkcat.device.interface import Device
from vkcat.errors import DeviceError, InputError, ModelError
from vkcat.images import cut
from vkcat.kernel import PRECISIONS, ROUNDED
from vkcat.model import build
from vkcat.presets import initial_model, names, preset
from vkcat.runner import Runner
from vkcat.stored import StoredModel
from vkcat.validate import validate_model
from vkcat.weights import save_model


@pytest.mark.parametrize("name", CONFIGS)
def test_every_node_of_every_step(vulkan_device: Device, name: str) -> None:
    made = stored(CONFIGS[name])
    results = list(validate_model(vulkan_device, build(made.config, 3), made.weights, "replay"))
    assert len(results) > 20
    assert [f"{r.op} {r.case}: {r.problem}" for r in results if not r.passed] == []


@pytest.mark.long
@pytest.mark.parametrize("dtype", PRECISIONS[1:])
@pytest.mark.parametrize("name", ["all", "experts"])
def test_every_node_in_float16(vulkan_device: Device, name: str, dtype: str) -> None:
    made = stored(replace(CONFIGS[name], dtype=dtype))
    results = list(validate_model(vulkan_device, build(made.config, 3), made.weights, "replay"))
    nodes = [result for result in results if result.op != "model"]
    assert [f"{r.op} {r.case}: {r.problem}" for r in nodes if not r.passed] == []
    lost = any(result.nmse > 1e-9 for result in nodes)
    assert lost == (dtype == ROUNDED), "only rounded sums lose digits"


def test_float16_weights_are_the_float32_ones_rounded(vulkan_device: Device, tmp_path: Path) -> None:
    made = stored(ALL)
    outputs = {}
    for dtype in PRECISIONS:
        save_model(tmp_path / dtype, replace(ALL, dtype=dtype), made.weights)
        session = vkcat.Session(tmp_path / dtype, device=vulkan_device)
        outputs[dtype] = session.prefill(list(b"hello"))
        session.close()
    half = build(replace(ALL, dtype="float16")).weights
    rounded = {name: array.astype(half[name].dtype).astype(np.float32) for name, array in made.weights.items()}
    session = vkcat.Session(StoredModel(ALL, rounded), device=vulkan_device)
    assert session.prefill(list(b"hello")).tobytes() == outputs["float16"].tobytes()
    session.close()
    assert 1e-6 < np.abs(outputs["float16"] - outputs["float32"]).max() < 0.05
    assert 1e-6 < np.abs(outputs[ROUNDED] - outputs["float16"]).max() < 0.2


@pytest.mark.parametrize("name", names())
def test_every_shipped_configuration(vulkan_device: Device, name: str) -> None:
    made = initial_model(preset(name), 1)
    results = list(validate_model(vulkan_device, build(made.config, 2), made.weights, "replay"))
    assert [f"{r.op} {r.case}: {r.problem}" for r in results if not r.passed] == []


@pytest.mark.parametrize("name", CONFIGS)
def test_prefill_is_steps(vulkan_device: Device, name: str) -> None:
    made, tokens = stored(CONFIGS[name]), draw_tokens(3, 17)
    one, other = (vkcat.Session(made, batch=3, device=vulkan_device) for _ in range(2))
    prefilled = one.prefill(tokens)
    for t in range(17):
        stepped = other.step(tokens[:, t])
    assert np.abs(prefilled - stepped).max() <= 1e-6 * np.abs(stepped).max()
    one.close()
    other.close()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_device_agrees_with_the_reference(vulkan_device: Device, name: str) -> None:
    made, tokens = stored(CONFIGS[name]), draw_tokens(2, 20, seed=3)
    got = vkcat.Session(made, batch=2, device=vulkan_device)
    expected = vkcat.Session(made, batch=2, device="reference")
    assert np.abs(got.prefill(tokens) - expected.prefill(tokens)).max() < 1e-4
    assert (got.generate(10, **SAMPLING) == expected.generate(10, **SAMPLING)).all()
    got.close()


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("where", ["device", "reference"])
def test_a_saved_state_goes_on_bit_by_bit(vulkan_device: Device, tmp_path: Path, name: str, where: str) -> None:
    device = vulkan_device if where == "device" else "reference"
    made = stored(CONFIGS[name])
    whole = vkcat.Session(made, batch=2, device=device)
    whole.prefill(draw_tokens(2, 9))
    first = whole.generate(5, **SAMPLING)
    whole.save_state(tmp_path / "state")
    expected, outputs = whole.generate(8, **SAMPLING), whole.outputs
    resumed = vkcat.Session(made, batch=2, device=device)
    resumed.load_state(tmp_path / "state")
    assert (resumed.generate(8, **SAMPLING) == expected).all()
    assert resumed.outputs.tobytes() == outputs.tobytes()
    again = vkcat.Session(made, batch=2, device=device)
    again.prefill(draw_tokens(2, 9))
    assert (again.generate(13, **SAMPLING) == np.concatenate([first, expected], axis=1)).all()
    for session in (whole, resumed, again):
        session.close()
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


def test_a_state_of_the_reference_goes_on_on_a_device(vulkan_device: Device, tmp_path: Path) -> None:
    made = stored(ALL)
    reference = vkcat.Session(made, device="reference")
    reference.prefill(list(b"hello"))
    reference.save_state(tmp_path / "state")
    device = vkcat.Session(made, device=vulkan_device)
    device.load_state(tmp_path / "state")
    assert (device.generate(6) == reference.generate(6)).all()
    device.close()


@pytest.mark.parametrize("schedule", ["eager", "batched", "replay", "unrolled"])
def test_one_seed_gives_the_same_bits(vulkan_device: Device, schedule: str) -> None:
    def run(schedule: str, seed: int) -> tuple[bytes, bytes]:
        session = vkcat.Session(stored(ALL), batch=2, device=vulkan_device, schedule=schedule)
        session.prefill(draw_tokens(2, 5))
        drawn = session.generate(12, temperature=1.0, seed=seed)
        outputs = session.outputs
        session.close()
        return drawn.tobytes(), outputs.tobytes()

    assert run(schedule, 1) == run("replay", 1)
    assert run(schedule, 1) != run(schedule, 2)


@pytest.mark.long
def test_both_backends_give_the_same_bits(both_backends: list[Device]) -> None:
    outputs = []
    for device in both_backends:
        session = vkcat.Session(stored(ALL), batch=3, device=device)
        session.prefill(draw_tokens(3, 9))
        outputs.append((session.generate(6, **SAMPLING).tobytes(), session.outputs.tobytes()))
        session.close()
    assert len(set(outputs)) == 1


@pytest.mark.parametrize("name", CONFIGS)
def test_changing_one_stream_changes_no_bit_of_another(vulkan_device: Device, name: str) -> None:
    made, tokens = stored(CONFIGS[name]), draw_tokens(5, 9)
    changed = tokens.copy()
    changed[2] = (changed[2] + 1) % 256

    def run(rows: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        session = vkcat.Session(made, batch=5, device=vulkan_device)
        session.prefill(rows)
        drawn = session.generate(6, **SAMPLING)
        outputs = session.outputs
        session.close()
        return drawn, outputs

    for before, after in zip(run(tokens), run(changed), strict=True):
        assert (before[2] != after[2]).any()
        others = [0, 1, 3, 4]
        assert before[others].tobytes() == after[others].tobytes()


def test_streams_of_different_lengths(vulkan_device: Device) -> None:
    made = stored(ALL)
    rows = [[1, 2, 3, 4, 5, 6], [9], [7, 8, 9]]
    together = vkcat.Session(made, batch=3, device=vulkan_device)
    outputs, drawn = together.prefill(rows), together.generate(5)
    for stream, row in enumerate(rows):
        alone = vkcat.Session(made, batch=3, device=vulkan_device)
        padded: list[list[int]] = [[0], [0], [0]]
        padded[stream] = row
        assert alone.prefill(padded)[stream].tobytes() == outputs[stream].tobytes()
        assert (alone.generate(5)[stream] == drawn[stream]).all()
        alone.close()
    together.close()


def test_reset_begins_a_stream_anew(vulkan_device: Device) -> None:
    made = stored(ALL)
    session = vkcat.Session(made, batch=2, device=vulkan_device)
    first = session.prefill([[1, 2, 3], [4, 5, 6]])
    session.generate(4, **SAMPLING)
    session.reset(0)
    with pytest.raises(InputError, match="generate: stream 0: expected a prefix to go on from, got none; see prefill"):
        session.generate(1)
    held = session.outputs[1]
    again = session.prefill([[1, 2, 3], []])
    assert again[0].tobytes() == first[0].tobytes()
    assert again[1].tobytes() == held.tobytes()
    session.reset()
    assert session.prefill([[1, 2, 3], [4, 5, 6]]).tobytes() == first.tobytes()
    drawn = session.generate(4, **SAMPLING)
    session.reset([0, 1])
    session.prefill([[1, 2, 3], [4, 5, 6]])
    assert (session.generate(4, **SAMPLING) == drawn).all()
    session.close()


def _same_output(device: Device, old: StreamConfig, new: StreamConfig) -> None:
    """`new` with its own initial weights gives the bits of `old` with the weights they share, node by node."""
    given = initial_model(new, 4)
    shared = {name: array for name, array in given.weights.items() if name in initial_model(old, 4).weights}
    assert set(given.weights) - set(shared), "the new model has weights of its own"
    outputs = []
    unfused = Runner("test", device, "vulkan", "replay", fuse=False)
    for model in (StoredModel(old, shared), given):
        session = vkcat.Session(model, batch=2, runner=unfused)
        session.prefill(draw_tokens(2, 12))
        session.generate(5)
        outputs.append(session.outputs.tobytes())
        session.close()
    assert outputs[0] == outputs[1]


BLOCKS = [GRU, EXPERTS, GRU, RING]


@pytest.mark.parametrize(
    "depth", ["dwa", {"kind": "attnres", "gated": True}, {"kind": "attnres", "gated": True, "block": 2}], ids=str
)
def test_depth_policies_start_as_the_residual_stream(vulkan_device: Device, depth: Any) -> None:
    _same_output(vulkan_device, config(BLOCKS, "residual"), config(BLOCKS, depth))


def test_modulation_starts_as_the_unmodulated_path(vulkan_device: Device) -> None:
    _same_output(vulkan_device, config(BLOCKS), config(BLOCKS, modulation={"context": 3}))


def test_an_image_is_a_prefix(vulkan_device: Device) -> None:
    made, pixels = stored(ALL), np.random.default_rng(0).integers(0, 256, (6, 9), dtype=np.uint8)
    session = vkcat.Session(made, batch=2, device=vulkan_device)
    reference = vkcat.Session(made, batch=2, device="reference")
    for one in (session, reference):
        one.read_image(pixels)
        one.prefill([[5], [6]])
    assert np.abs(session.outputs - reference.outputs).max() < 1e-4
    without = vkcat.Session(made, batch=2, device=vulkan_device)
    assert np.abs(without.prefill([[5], [6]]) - session.outputs).max() > 1e-3
    turned = vkcat.Session(made, batch=2, device=vulkan_device)
    turned.read_image(pixels[::-1])
    assert np.abs(turned.prefill([[5], [6]]) - session.outputs).max() > 1e-3
    for one in (session, without, turned):
        one.close()


def test_patches_are_cut_row_by_row() -> None:
    read = ALL.stack.patches
    assert read is not None
    image = np.arange(54).reshape(6, 9)
    patches = cut(image, read, 1)
    assert patches.shape == (1, 6, 9)
    assert patches[0, 1].tolist() == [3, 4, 5, 12, 13, 14, 21, 22, 23]
    assert patches[0, 3].tolist() == [27, 28, 29, 36, 37, 38, 45, 46, 47]
    assert cut(np.full((6, 9, 1), 255, np.uint8), read, 1).max() == 1
    with pytest.raises(InputError, match=r"image: expected \(6, 9, 1\) numbers, or 1 of them, got \(9, 6\)"):
        cut(np.zeros((9, 6)), read, 1)


def test_features_in_vectors_out(vulkan_device: Device) -> None:
    """A stack that knows no tokens; strided, Fortran-ordered and float64 arrays are taken as what they hold."""
    made = stored(config([GRU, RING], input=None, features={"size": 5}, output={"kind": "continuous", "size": 3}))
    x = np.random.default_rng(1).standard_normal((7, 2, 10))
    given = np.asfortranarray(x)[:, :, ::2].swapaxes(0, 1)
    session = vkcat.Session(made, batch=2, device=vulkan_device)
    reference = vkcat.Session(made, batch=2, device="reference")
    outputs = session.read_features(given)
    assert outputs.shape == (2, 7, 3)
    assert np.abs(outputs - reference.read_features(given)).max() < 1e-5
    with pytest.raises(InputError, match="generate: expected a model that reads and gives tokens"):
        session.generate(1)
    with pytest.raises(InputError, match=r"features: expected \(2, T, 5\), got \(2, 7, 4\)"):
        session.read_features(given[..., :4])
    session.close()


@pytest.mark.parametrize("drawn", [(1 << 31) - 2, (1 << 32) - 2])
def test_counters_pass_the_ends_of_their_integers(vulkan_device: Device, tmp_path: Path, drawn: int) -> None:
    """A stream that drew that many tokens goes on as the reference does."""
    made = stored(CONFIGS["ring"])
    tokens = []
    for device in (vulkan_device, "reference"):
        session = vkcat.Session(made, device=device)
        session.prefill(list(b"abc"))
        session.save_state(tmp_path / "state")
        _change(tmp_path / "state", lambda state: state["drawn"].fill(drawn))
        session.load_state(tmp_path / "state")
        tokens.append(session.generate(6, **SAMPLING).tolist())
        session.save_state(tmp_path / "state")
        assert load_file(tmp_path / "state")["drawn"].tolist() == [(drawn + 6) % (1 << 32)]
        session.close()
    assert tokens[0] == tokens[1]


def _change(path: Path, change: Any) -> None:
    """Change the tensors of a saved state, and keep what it says of itself."""
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    state = load_file(path)
    change(state)
    save_file(state, path, metadata=metadata)


def _resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.long
def test_100000_steps_stay_flat_and_finite(vulkan_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of so small a model lavapipe's other threads take 100 seconds to wake: it is opened without.
    monkeypatch.setenv("LP_NUM_THREADS", "0")
    device = vkcat.open_device("vulkan", vulkan_device.info.name)
    delta = {**DELTA, "key": 4, "value": 4, "rank": 2, "convolution": 0}
    small = config([{**GRU, "hidden": 8}, delta, {**RING, "head_width": 2}], "plain", width=8, norm="none")
    session = vkcat.Session(stored(small), device=device)
    session.prefill([1])
    for _ in session.tokens(10_000, temperature=1.0):
        pass
    before = _resident()
    for _ in session.tokens(90_000, temperature=1.0):
        pass
    assert _resident() - before < 4 << 20
    assert np.isfinite(session.outputs).all()
    kept = {name: session._steps.read_state(tensor) for name, tensor in session.model.shared.kept.items()}
    assert all(np.isfinite(array).all() for array in kept.values())
    assert kept["blocks.2.t"][0] < 2 * RING["window"]
    assert kept["drawn"][0] == 100_000
    session.close()
    device.close()


def _broken(change: Any) -> Any:
    def run(tmp_path: Path, session: vkcat.Session) -> None:
        session.save_state(tmp_path / "state")
        _change(tmp_path / "state", change)
        session.load_state(tmp_path / "state")

    return run


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda _, s: s.prefill([[1]]), "tokens: expected 2 sequences of ids, got 1"),
        (lambda _, s: s.prefill("ab"), "tokens: expected 2 sequences of ids, got str"),
        (lambda _, s: s.prefill([[1.7], [2.2]]), "tokens: expected integers, got an array of float64"),
        (lambda _, s: s.prefill([["a"], ["b"]]), "tokens: expected integers, got an array of <U1"),
        (lambda _, s: s.step([1.5, 2]), "step: tokens: expected integers, got an array of float64"),
        (lambda _, s: s.reset([0.5]), "reset: expected integers, got an array of float64"),
        (lambda _, s: s.prefill([[1], [2]]) is None or s.generate(2.5), "count: expected an integer, got 2.5"),
        (lambda _, s: s.prefill([[1], [2]]) is None or s.generate(1, top_k=2.5), "top_k: expected an integer"),
        (lambda _, s: s.prefill([[1], [2]]) is None or s.generate(1, temperature=1e-39), "0, or 0.0001 to 10000"),
        (lambda _, s: s.prefill([[1], [256]]), "tokens: expected 0 to 255, got 256"),
        (lambda _, s: s.prefill([[1], [-1]]), "tokens: expected 0 to 255, got -1"),
        (lambda _, s: s.step([1, 2, 3]), r"step: tokens: expected \(2,\), got \(3,\)"),
        (lambda _, s: s.read_image(np.zeros((2, 2))), "image: expected a model that reads patches, got one with the"),
        (lambda _, s: s.generate(1), "generate: stream 0: expected a prefix"),
        (lambda _, s: s.prefill([[1], [2]]) is None or s.generate(1, temperature=-1), "temperature: expected"),
        (lambda _, s: s.prefill([[1], [2]]) is None or s.generate(1, temperature=np.nan), "temperature: expected"),
        (lambda _, s: s.prefill([[1], [2]]) is None or s.generate(1, top_k=257), "top_k: expected 0 to 256, got 257"),
        (lambda _, s: s.prefill([[1], [2]]) is None or s.generate(1, seed=-1), "seed: expected 0 to 4294967295"),
        (lambda _, s: s.reset(2), r"reset: expected streams 0 to 1, got \[2\]"),
        (lambda p, s: s.load_state(p / "none"), "none: expected a saved state, got no such file"),
        (lambda p, s: s.save_state(p / "no" / "folder"), "folder: expected a file that can be written"),
        (_broken(lambda state: state.pop("drawn")), "state: expected the state of"),
        (_broken(lambda state: state.update(drawn=np.zeros(3, np.uint32))), r"drawn: expected \(2,\), got \(3,\)"),
        (_broken(lambda state: state.update(drawn=np.ones(2, np.float32))), "drawn: expected dtype U32, got F32"),
    ],
)
def test_mistakes_are_named(vulkan_device: Device, tmp_path: Path, use: Any, message: str) -> None:
    session = vkcat.Session(stored(CONFIGS["gru"]), batch=2, device=vulkan_device)
    with pytest.raises(InputError, match=message):
        use(tmp_path, session)
    session.close()


def test_another_file_is_no_state(vulkan_device: Device, tmp_path: Path) -> None:
    save_model(tmp_path / "model", CONFIGS["gru"], stored(CONFIGS["gru"]).weights)
    session = vkcat.Session(tmp_path / "model", device=vulkan_device)
    with pytest.raises(InputError, match="expected a saved state"):
        session.load_state(tmp_path / "model" / "model.safetensors")
    (tmp_path / "cut").write_bytes(b"\x10\0\0")
    with pytest.raises(InputError, match="cut: expected a whole safetensors file"):
        session.load_state(tmp_path / "cut")
    session.close()


def test_an_encoder_decoder_is_no_session(g2p: Path) -> None:
    with pytest.raises(ModelError, match="session: expected a model of one stream, got an encoder-decoder; see vkcat"):
        vkcat.Session(g2p, device="reference")


def test_a_state_of_another_model_is_refused(tmp_path: Path) -> None:
    one, other = (vkcat.Session(stored(CONFIGS["gru"], seed), device="reference") for seed in (1, 2))
    one.prefill([1])
    one.save_state(tmp_path / "state")
    with pytest.raises(InputError, match="model: expected small .*, got small .*; another model's state"):
        other.load_state(tmp_path / "state")


def test_a_state_goes_through_a_link(tmp_path: Path) -> None:
    session = vkcat.Session(stored(CONFIGS["gru"]), device="reference")
    session.prefill([1])
    (tmp_path / "link").symlink_to(tmp_path / "state")
    session.save_state(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    session.load_state(tmp_path / "state")


def test_held_streams_take_no_room_from_others(vulkan_device: Device) -> None:
    """Experts with a capacity: what a stream that is not going on read before does not matter."""
    made = stored(config([GRU, {**EXPERTS, "capacity": 1.0, "chosen": 1}]))
    session = vkcat.Session(made, batch=2, device=vulkan_device)
    outputs = set()
    for past in range(6):
        session.reset()
        session.prefill([[past] * 4, [1]])
        session.reset()
        outputs.add(session.prefill([[], [2, 3, 4, 5]])[1].tobytes())
    assert len(outputs) == 1
    session.close()


def test_use_after_close_says_so(vulkan_device: Device) -> None:
    for device in (vulkan_device, "reference"):
        session = vkcat.Session(stored(CONFIGS["gru"]), device=device)
        session.close()
        with pytest.raises(DeviceError, match="executor: expected one that is open"):
            session.prefill([1])
