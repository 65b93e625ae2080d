"""What the profile times as a step is what a session does for one."""

from __future__ import annotations

import pytest
from stream_models import CONFIGS, stored

from vkcat.device.interface import Device
from vkcat.model import build_stream
from vkcat.profile.measure import OVERLAPPED, Subject

ALTERNATING = ["launch", "finish", "read"]
OVERLAPPING = ["launch", *["launch", "finish", "read"] * (OVERLAPPED - 1), "finish", "read"]


@pytest.mark.parametrize("graph", ["tokens", "generate"])
@pytest.mark.parametrize("schedule", ["eager", "batched", "replay"])
def test_steps_overlap_where_a_sessions_do(
    device: Device, schedule: str, graph: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the model reads its own tokens; what the host gives a token for is waited for."""
    model = build_stream(stored(CONFIGS["gru"]).config, 2)
    subject = Subject(device, model, stored(CONFIGS["gru"]).weights, schedule, model.graphs[graph])
    executor, happened = subject._executor, []
    for name in ("launch", "finish", "read"):

        def watched(*given: object, of: str = name, call: object = getattr(executor, name)) -> object:
            happened.append(of)
            return call(*given)

        monkeypatch.setattr(executor, name, watched)
    subject.sample()
    overlapping = schedule == "replay" and graph == "generate" and device.separate_wait
    assert happened == (OVERLAPPING if overlapping else ALTERNATING)
    times = subject.series
    assert times.submits == (len(model.graphs[graph].nodes) if schedule == "eager" else 1)
    assert times.submit[0] + times.wait[0] + times.record[0] <= times.step[0], "a part of the step each"
    assert times.submit[0] > 0
    assert times.wait[0] > 0
    subject.close()
