"""Generation: generators among other steps, and the schedule that puts many tokens in one submission."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from stream_models import ALL, CONFIGS, SAMPLING, draw_tokens, stored

import vkcat
from vkcat.device.interface import Device
from vkcat.errors import DeviceError, InputError
from vkcat.model.stream import HISTORY
from vkcat.schedules import MOST_STEPS


@pytest.mark.parametrize("between", ["prefill", "read_image", "read_features", "load_state", "reset"])
def test_a_generator_goes_on_after_other_steps(vulkan_device: Device, tmp_path: Path, between: str) -> None:
    """What a paused generator draws follows from the session as it is then."""
    made = stored(ALL)

    def use(session: vkcat.Session) -> None:
        if between == "prefill":
            session.prefill(list(b"!?"))
        elif between == "read_image":
            session.read_image(np.ones((6, 9)))
        elif between == "read_features":
            session.read_features(np.ones((3, 5)))
        elif between == "load_state":
            session.load_state(tmp_path / f"state-{id(session)}")
        else:
            session.reset()
            session.prefill([7])

    drawn = []
    for whole in (False, True):
        session = vkcat.Session(made, device=vulkan_device)
        session.prefill(list(b"hello"))
        session.save_state(tmp_path / f"state-{id(session)}")
        tokens = session.tokens(6, **SAMPLING)
        first = [int(next(tokens)[0]) for _ in range(3)]
        use(session)
        rest = session.generate(3, **SAMPLING)[0].tolist() if whole else [int(token[0]) for token in tokens]
        drawn.append(first + rest)
        session.close()
    assert drawn[0] == drawn[1]


def test_generators_keep_their_own_options(vulkan_device: Device) -> None:
    session = vkcat.Session(stored(CONFIGS["gru"]), device=vulkan_device)
    reference = vkcat.Session(stored(CONFIGS["gru"]), device="reference")
    for one in (session, reference):
        one.prefill([1])
    greedy = session.tokens(6)
    got = [int(next(greedy)[0])]
    wild = session.tokens(3, temperature=5.0, seed=1)
    got += [int(next(greedy)[0]), int(next(wild)[0]), int(next(greedy)[0])]
    expected = [
        *reference.generate(2)[0],
        *reference.generate(1, temperature=5.0, seed=1)[0],
        *reference.generate(1)[0],
    ]
    assert got == expected
    session.reset()
    with pytest.raises(InputError, match="expected a prefix"):
        next(greedy)
    session.close()


def _unrolled(device: Device, batch: int = 2, **options: float) -> vkcat.Session:
    session = vkcat.Session(stored(ALL), batch=batch, device=device, schedule="unrolled", **options)
    session.prefill(draw_tokens(batch, 5))
    return session


def test_unrolled_draws_what_replay_does(vulkan_device: Device, tmp_path: Path) -> None:
    """Over many numbers of tokens, with other steps, saved states and resets between them."""
    drawn = []
    for schedule in ("replay", "unrolled"):
        session = vkcat.Session(stored(ALL), batch=2, device=vulkan_device, schedule=schedule)
        session.prefill(draw_tokens(2, 5))
        seen = [session.generate(count, **SAMPLING).tolist() for count in (1, 2, 3, 150, 0, 37)]
        session.save_state(tmp_path / schedule)
        session.step([3, 4])
        seen.append(session.generate(9, **SAMPLING).tolist())
        session.reset(1)
        session.prefill([[], [7]])
        seen.append(session.generate(20, **SAMPLING).tolist())
        session.load_state(tmp_path / "replay")
        seen.append(session.generate(20, **SAMPLING).tolist())
        drawn.append((seen, session.outputs.tobytes()))
        session.close()
    assert drawn[0] == drawn[1]
    kept = [load_file(tmp_path / schedule) for schedule in ("replay", "unrolled")]
    assert all((kept[0][name] == kept[1][name]).all() for name in kept[0])


def _launches(session: vkcat.Session, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Grows by each launch's number of steps, and how many launches are then under way."""
    launched: list[tuple[int, int]] = []
    launch = session._steps.launch

    def watched(graph: str, count: int) -> None:
        launch(graph, count)
        # This one among them.
        launched.append((count, len(session._flights._flying)))

    monkeypatch.setattr(session._steps, "launch", watched)
    return launched


@pytest.mark.long
def test_unrolled_submits_many_steps_at_once(vulkan_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    session = _unrolled(vulkan_device)
    session.generate(200)
    launched = _launches(session, monkeypatch)
    session.generate(200)
    session.close()
    assert sum(count for count, _ in launched) == 200
    assert max(count for count, _ in launched) >= 8
    assert all(count & (count - 1) == 0 for count, _ in launched)
    assert max(flying for _, flying in launched) == 2


@pytest.mark.parametrize("schedule", ["eager", "batched", "replay"])
def test_only_whoever_takes_all_tokens_has_the_device_ahead(
    device: Device, schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`generate` submits the next step while one runs, where that is possible; `tokens` never: it may be left."""
    session = vkcat.Session(stored(ALL), batch=2, device=device, schedule=schedule)
    session.prefill(draw_tokens(2, 5))
    launched = _launches(session, monkeypatch)
    whole = session.generate(5)
    most = 2 if schedule == "replay" and device.separate_wait else 1
    assert launched == [(1, 1), *[(1, most)] * 4]
    session.reset()
    session.prefill(draw_tokens(2, 5))
    launched.clear()
    tokens = session.tokens(5)
    first = np.stack([next(tokens) for _ in range(3)], axis=1)
    assert launched == [(1, 1)] * 3
    assert (session._flights.drawn == 3).all()
    assert (np.concatenate([first, session.generate(2)], axis=1) == whole).all()
    session.close()


def test_the_history_holds_two_submissions() -> None:
    assert 2 * MOST_STEPS <= HISTORY


def test_a_submission_keeps_within_its_limit(vulkan_device: Device) -> None:
    session = _unrolled(vulkan_device, submit_limit_ms=1e-6)
    drawn = session.generate(12)
    assert session._steps.chunk("generate") == 1
    session.close()
    session = _unrolled(vulkan_device)
    assert (session.generate(12) == drawn).all()
    session.close()


def test_a_generator_that_is_left_leaves_what_was_drawn(vulkan_device: Device) -> None:
    """The device is ahead: streams have read a whole number of submissions, and the generator still has the rest."""
    session = _unrolled(vulkan_device)
    session.generate(64)
    tokens = session.tokens(300, **SAMPLING)
    first = [next(tokens) for _ in range(3)]
    session.step([1, 2])
    count = int(session._flights.drawn[0]) - 64
    ahead = [next(tokens) for _ in range(count - 3)]
    other = vkcat.Session(stored(ALL), batch=2, device=vulkan_device)
    other.prefill(draw_tokens(2, 5))
    other.generate(64)
    assert (np.stack(first + ahead, axis=1) == other.generate(count, **SAMPLING)).all()
    other.step([1, 2])
    assert (np.stack(list(tokens), axis=1) == other.generate(300 - count, **SAMPLING)).all()
    assert session.outputs.tobytes() == other.outputs.tobytes()
    session.close()
    other.close()


def test_a_session_closed_with_steps_under_way(vulkan_device: Device) -> None:
    session = _unrolled(vulkan_device)
    session.generate(64)
    tokens = session.tokens(300)
    next(tokens)
    session.close()
    with pytest.raises(DeviceError, match="executor: expected one that is open"):
        list(tokens)


def test_unrolled_needs_a_backend_that_can(both_backends: list[Device]) -> None:
    for device in both_backends[1:]:
        with pytest.raises(DeviceError, match="unrolled: expected a backend whose recordings may write a tensor more"):
            vkcat.Session(stored(CONFIGS["gru"]), device=device, schedule="unrolled")


@pytest.mark.parametrize("after", [0, 1, 2])
def test_reset_so_many_steps_after_a_token_was_read(device: Device, after: int) -> None:
    """Drawn tokens are read from where a reset writes, which is no input."""
    session = vkcat.Session(stored(CONFIGS["gru"]), device=device)
    drawn = []
    for _ in range(2):
        session.prefill([1])
        drawn.append(session.generate(1, **SAMPLING).tolist())
        for token in range(after):
            session.step([token])
        session.reset()
    session.prefill([1])
    assert drawn[0] == drawn[1]
    session.close()
