"""Time outside kernels by the slope from one to several steps in a submission."""

from __future__ import annotations

import pytest

from vkcat.profile.slope import SEVERAL, SlopeProbe


def test_what_a_submission_costs_is_outside() -> None:
    """100 us a submission and 40 us a step: a step of 150 us is 110 us outside; the first round is warm-up."""
    asked = []

    def submission(count: int) -> float:
        asked.append(count)
        return (9e9 if len(asked) == 1 else 100e3) + 40e3 * count

    probe = SlopeProbe("vulkan", submission)
    probe.sample(2)
    probe.sample(3)
    found = probe.outside("replay", [1.0] + [150e3] * 4, warmup=1)
    assert asked == [1, SEVERAL] * 5
    assert found.device_us.median == pytest.approx(40)
    assert found.outside_us.median == pytest.approx(110)
    assert found.outside_percent == pytest.approx(100 * 110 / 150)
    assert not found.device_us.noisy
