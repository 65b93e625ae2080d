"""Negative, zero or reordered timestamps: a profile shows no time that cannot be, and says why it ends.

Met publicly: Wumpf/wgpu-profiler#64, where an end lay before its begin.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from msgspec import structs
from stream_models import CONFIGS, stored

from vkcat.cli import cli
from vkcat.device.interface import Device, Dispatch
from vkcat.device.timestamps import check_within, elapsed_ns
from vkcat.device.vulkan.recording import VulkanRecording
from vkcat.doctor import check_device, checks
from vkcat.errors import DeviceError
from vkcat.model import build
from vkcat.profile import ceilings
from vkcat.profile.measure import Subject
from vkcat.profile.spans import Span, Submission
from vkcat.profile.trace import on_host_clock
from vkcat.weights import save_model

BITS = 36
REORDERED = "timestamps of a dispatch: expected an end that is not before the begin, got one"
TOO_LONG = "timestamps of a dispatch: expected at most the .* us that the host waited, got"


def _with_ticks(monkeypatch: pytest.MonkeyPatch, changed: Callable[[int, int], tuple[int, int]]) -> None:
    """What the driver says of each dispatch, changed."""
    read = VulkanRecording.ticks
    monkeypatch.setattr(VulkanRecording, "ticks", lambda self: [changed(begin, end) for begin, end in read(self)])


def _subject(device: Device) -> Subject:
    made = stored(CONFIGS["gru"])
    model = build(made.config)
    return Subject(device, model, made.weights, "replay", model.graphs["generate"])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda begin, end: (end, begin), REORDERED),
        (lambda begin, end: (begin, begin - 1), f"{REORDERED} 1 ticks before it"),
        (lambda begin, end: (begin, 0), REORDERED),
        (lambda begin, end: (0, end), TOO_LONG),
        (lambda begin, end: (begin, end + 10**12), TOO_LONG),
    ],
    ids=["reordered", "one tick early", "end not written", "begin not written", "far too long"],
)
def test_timestamps_that_cannot_be_are_refused(
    vulkan_device: Device, monkeypatch: pytest.MonkeyPatch, changed: Any, message: str
) -> None:
    """No negative and no absurd time reaches a table: a profile ends with a line that says why."""
    with closing(_subject(vulkan_device)) as subject:
        subject.sample()
        _with_ticks(monkeypatch, changed)
        with pytest.raises(DeviceError, match=message):
            subject.sample()


def test_timestamps_that_cannot_be_are_told_by_doctor(vulkan_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "OPS", {})
    _with_ticks(monkeypatch, lambda begin, end: (end, begin))
    assert REORDERED in next(check.problem for check in check_device(vulkan_device) if check.name == "timestamps")


def test_timestamps_that_stand_still_end_a_profile(vulkan_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks for a device's ceilings makes a dispatch longer until it can be timed, but not for ever."""
    monkeypatch.setattr(ceilings, "MOST_WAITED_NS", 1e5)
    _with_ticks(monkeypatch, lambda begin, end: (begin, begin))
    with pytest.raises(
        DeviceError, match="timestamps of a dispatch: expected about the .* us that the host waited, got"
    ):
        ceilings.CeilingProbe(vulkan_device, 1 << 16)


@pytest.mark.parametrize(
    ("device_ns", "refused"), [([60.0, 40.0], False), ([100.0], False), ([102.0], True), ([], False)]
)
def test_dispatches_side_by_side_may_sum_to_more_than_was_waited(device_ns: list[float], refused: bool) -> None:
    """Each by itself may not; a clock may be off by a hundredth."""
    if refused:
        with pytest.raises(DeviceError, match=TOO_LONG):
            check_within(device_ns, 100)
    else:
        check_within(device_ns, 100)


def test_bits_above_the_valid_ones_change_no_time(vulkan_device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter of 36 bits whose other bits are noise."""
    noise = np.random.default_rng(0)

    def garbled(ticks: int) -> int:
        return ticks & ((1 << BITS) - 1) | int(noise.integers(0, 1 << (64 - BITS))) << BITS

    _with_ticks(monkeypatch, lambda begin, end: (garbled(begin), garbled(end)))
    monkeypatch.setattr(vulkan_device._core, "info", structs.replace(vulkan_device.info, timestamp_bits=BITS))
    with closing(_subject(vulkan_device)) as subject:
        for _ in range(20):
            subject.sample()
    assert all(0 < ns < 1e9 for kernels in subject.series.kernels for ns in kernels)


def _submission(begin: int, end: int) -> Submission:
    return Submission(
        [Dispatch("add", (), (), None)], Span("submit", 0, 0), Span("wait", 10_000, 10_000), [(begin, end)], None
    )


def test_a_trace_has_no_negative_times(vulkan_device: Device) -> None:
    info = structs.replace(vulkan_device.info, timestamp_bits=BITS, timestamp_period=1.0)
    last = (1 << BITS) - 1
    for begin, end, ns in ((5, 5, 0), (last, 4, 5), (last | 1 << 60, 4, 5)):
        _, [[run]] = on_host_clock([_submission(begin, end)], info)
        assert run.end - run.begin == pytest.approx(ns)
    with pytest.raises(DeviceError, match=REORDERED):
        on_host_clock([_submission(5, 4)], info)


def test_half_a_turn_of_the_counter_is_the_longest_time() -> None:
    half = 1 << (BITS - 1)
    assert elapsed_ns(0, half - 1, 2.0, BITS) == 2.0 * (half - 1)
    with pytest.raises(DeviceError, match=f"{REORDERED} {half} ticks before it"):
        elapsed_ns(0, half, 2.0, BITS)


def test_an_equal_begin_and_end_are_a_time_of_zero(vulkan_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a coarse clock gives for short kernels: zero in the tables, no division by it, and samples to compare."""
    with closing(_subject(vulkan_device)) as subject:
        _with_ticks(monkeypatch, lambda begin, end: (begin, begin))
        for _ in range(3):
            subject.sample()
        assert subject.times(1).kernel_us.median == 0
        assert {kernel.share_percent for kernel in subject.kernels(1)} == {0.0}
        assert all(us > 0 for series in subject.samples(1) for us in series.us)


def test_a_profile_that_is_refused_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made = stored(CONFIGS["gru"])
    save_model(tmp_path / "model", made.config, made.weights)
    _with_ticks(monkeypatch, lambda begin, end: (end, begin))
    done = CliRunner().invoke(cli, ["profile", str(tmp_path / "model"), "--runs", "2", "--json", str(tmp_path / "p")])
    assert isinstance(done.exception, DeviceError)
    assert REORDERED in str(done.exception)
    assert "\n" not in str(done.exception)
    assert not (tmp_path / "p").exists()
