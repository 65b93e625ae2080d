"""Telemetry: on a device as in the reference, by hand where that is short, and without a trace in the outputs."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from stream_models import ALL, CONFIGS, EXPERTS, GRU, RING, config, stored

import vkcat
from vkcat.cli import cli
from vkcat.device.interface import Device
from vkcat.executor import Executor
from vkcat.model import build
from vkcat.runner import Runner
from vkcat.telemetry import Telemetry
from vkcat.validate import validate_model
from vkcat.weights import save_model


def _records(device: Device | str, made: vkcat.StoredModel, batch: int = 2) -> tuple[list[dict[str, Any]], bytes]:
    records: list[dict[str, Any]] = []
    session = vkcat.Session(made, batch=batch, device=device, on_step=records.append)
    session.prefill(np.random.default_rng(0).integers(0, 256, (batch, 8)))
    session.generate(3, temperature=1.0)
    outputs = session.outputs.tobytes()
    session.close()
    return records, outputs


@pytest.mark.parametrize("name", CONFIGS)
def test_a_device_tells_what_the_reference_does(vulkan_device: Device, name: str) -> None:
    made = stored(CONFIGS[name])
    (got, _), (expected, _) = _records(vulkan_device, made), _records("reference", made)
    assert [record["graph"] for record in got] == ["tokens"] * 8 + ["generate"] * 3
    assert [record["step"] for record in got] == list(range(11))
    for one, other in zip(got, expected, strict=True):
        assert one["parts"].keys() == other["parts"].keys()
        for part, values in one["parts"].items():
            for key, value in values.items():
                assert np.allclose(value, other["parts"][part][key], rtol=1e-4, atol=1e-5), (part, key)


def test_telemetry_leaves_no_trace_in_the_outputs(vulkan_device: Device) -> None:
    made = stored(ALL)
    _, outputs = _records(vulkan_device, made)
    for fuse in (False, True):
        session = vkcat.Session(made, batch=2, runner=Runner("test", vulkan_device, "vulkan", "replay", fuse=fuse))
        session.prefill(np.random.default_rng(0).integers(0, 256, (2, 8)))
        session.generate(3, temperature=1.0)
        # What is looked at stays a node of its own: only where nothing is fused are they the same nodes.
        expected = np.frombuffer(outputs, np.float32).reshape(session.outputs.shape)
        assert np.abs(session.outputs - expected).max() <= (1e-5 if fuse else 0)
        session.close()


def test_what_is_told_of_each_kind_of_part() -> None:
    made = config([GRU, {**EXPERTS, "capacity": 0.5}, {**RING, "window": 4}])
    records, _ = _records("reference", stored(made), batch=4)
    parts = records[-1]["parts"]
    assert parts["norms.0"]["rms_after"] == pytest.approx([1, 1, 1, 1], abs=1e-3)
    assert set(parts["norms.0"]) == {
        f"{key}{suffix}" for key in ("rms", "greatest", "nan", "inf") for suffix in ("_before", "_after")
    }
    assert 0 < min(parts["blocks.0"]["drift"]) < 2
    experts = parts["blocks.1"]
    assert sum(experts["tokens_per_expert"]) == 4 * 2
    assert experts["load_violation"] == max(experts["tokens_per_expert"]) / (8 / 5) - 1
    # One token an expert: what is beyond the first is dropped.
    assert sum(experts["dropped"]) == sum(max(load - 1, 0) for load in experts["tokens_per_expert"])
    assert all(0 < entropy <= math.log(5) for entropy in experts["router_entropy"])
    occupancy = [record["parts"]["blocks.2"]["ring_occupancy"][0] for record in records]
    assert occupancy == [0.25, 0.5, 0.75, *[1.0] * 8]
    assert set(parts["output"]) == {"rms", "greatest", "nan", "inf"}


def test_decay_of_the_delta_memory() -> None:
    records, _ = _records("reference", stored(CONFIGS["delta"]))
    for part in ("blocks.0", "blocks.1"):
        told = records[-1]["parts"][part]
        for stream in range(2):
            least, mean, greatest = (told[f"decay_{name}"][stream] for name in ("least", "mean", "greatest"))
            assert 0 <= least < mean < greatest <= 1


def test_nan_in_a_state_is_counted_in_its_stream_alone(vulkan_device: Device) -> None:
    records: list[dict[str, Any]] = []
    session = vkcat.Session(stored(CONFIGS["ring"]), batch=2, device=vulkan_device, on_step=records.append)
    session.prefill([[1], [2]])
    state = session.model.shared.kept["blocks.0.h"]
    values = session._steps.read_state(state)
    values[1, 3] = np.nan
    session._steps.write(state, values)
    session.step([3, 4])
    told = records[-1]["parts"]["output"]
    assert told["nan"] == [0, 256]
    assert told["rms"][0] > 0
    session.reset(1)
    session.step([3, 4])
    assert records[-1]["parts"]["output"]["nan"] == [0, 0]
    session.close()


def test_measuring_nodes_are_validated_and_submitted_once(vulkan_device: Device) -> None:
    made = stored(ALL)
    model = build(made.config, 2)
    Telemetry(model)
    results = list(validate_model(vulkan_device, model, made.weights, "replay"))
    assert {"activation_stats", "state_drift", "decay_stats", "moe_stats"} <= {result.op for result in results}
    assert [f"{r.op} {r.case}: {r.problem}" for r in results if not r.passed] == []
    executor = Executor(vulkan_device, list(model.graphs.values()))
    executor.step("tokens")
    assert executor.host_times.submits == 1
    executor.close()


def test_run_writes_a_line_a_step(tmp_path: Path) -> None:
    save_model(tmp_path / "m", ALL, stored(ALL).weights)
    options = ("--prompt", "abc", "--tokens", "4", "--device", "reference", "--telemetry", str(tmp_path / "t.jsonl"))
    assert CliRunner().invoke(cli, ["run", str(tmp_path / "m"), *options]).exit_code == 0
    records = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [record["graph"] for record in records] == ["tokens"] * 3 + ["generate"] * 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m", "t.jsonl"]
