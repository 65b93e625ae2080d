"""vkcat tune: the search, the table that it leaves, and who reads it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from stream_models import CONFIGS, GRU, RING, config, stored

from vkcat import tilings
from vkcat.chunks import SIZES
from vkcat.cli import cli
from vkcat.device.interface import Device
from vkcat.errors import DeviceError, InputError, VkcatWarning
from vkcat.graph import Node
from vkcat.model import build_stream, fused_for
from vkcat.parameters import chosen_tiling, default_tiling
from vkcat.shader import load
from vkcat.tiling import Tiling, is_possible
from vkcat.tune import search, tunable
from vkcat.validate.result import Result
from vkcat.weights import save_model

BEST = Tiling(streams=1, rows=4, split=2, lanes=32)


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(tilings.VARIABLE, str(tmp_path / "tilings.json"))
    tilings._kept.cache_clear()
    yield tmp_path / "tilings.json"
    tilings._kept.cache_clear()


def _nodes(device: Device, batch: int = 1) -> list[Node]:
    return tunable(fused_for(device.info, tuple(build_stream(config([GRU, RING]), batch).graphs.values())))


def _linear(device: Device) -> Node:
    return next(node for node in _nodes(device) if node.shader == "linear_add")


class _Synthetic:
    """A subject whose time is the distance from BEST in doublings, with noise."""

    def __init__(self, device: Device, node: Node) -> None:
        del device, node
        self._rng = np.random.default_rng(0)

    def time(self, tiling: Tiling) -> float:
        pairs = zip(tiling.constants.values(), BEST.constants.values(), strict=True)
        distance = sum(abs(np.log2(one / other)) for one, other in pairs)
        return float(1000 * (1 + distance / 4) * self._rng.lognormal(0, 0.02))

    def close(self) -> None:
        """There is nothing to release."""


def test_what_can_be_tuned_is_listed_once(vulkan_device: Device) -> None:
    keys = [tilings.node_key(node) for node in _nodes(vulkan_device)]
    assert len(keys) == len(set(keys))
    assert {key.split()[0] for key in keys} == {"gru_layer", "ring_step", "linear_add", "norm_linear"}
    assert all("ROWS" in load(node.shader).interface.spec for node in _nodes(vulkan_device))


def test_the_search_finds_the_best(vulkan_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "Subject", _Synthetic)
    found = search.tune(vulkan_device, _linear(vulkan_device))
    assert found.best == BEST
    assert found.ratio < 1
    assert 3 < found.tried < 40


def test_noise_moves_nothing(vulkan_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    class Flat(_Synthetic):
        def time(self, tiling: Tiling) -> float:
            del tiling
            return float(1000 * self._rng.lognormal(0, 0.02))

    monkeypatch.setattr(search, "Subject", Flat)
    node = _linear(vulkan_device)
    found = search.tune(vulkan_device, node)
    assert found.best == found.default == default_tiling(node, vulkan_device.info)
    assert found.ratio == 1


def test_what_is_wrong_is_not_kept(vulkan_device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(*given: Any, **options: Any) -> list[Result]:
        del given, options
        return [Result("linear_add", "case", "y", 1.0, 1.0, 1.0, 1.0, 0.0, "", "1 element beyond its bound")]

    monkeypatch.setattr(search, "Subject", _Synthetic)
    monkeypatch.setattr(search, "validate_case", wrong)
    with pytest.raises(DeviceError, match="linear_add .*expected what the reference computes"):
        search.tune(vulkan_device, _linear(vulkan_device))


@pytest.mark.parametrize("batch", [1, 9])
def test_every_neighbour_is_right(vulkan_device: Device, batch: int) -> None:
    """Whatever the search may come to, one step from the default."""
    for node in _nodes(vulkan_device, batch):
        for tiling in search._neighbours(node, default_tiling(node, vulkan_device.info)):
            case = search.case_of(node)
            results = search.validate_case(vulkan_device, node.kernel, case, tiling=tiling)
            assert [result for result in results if not result.passed] == [], (node.shader, tiling)


def test_a_measured_tiling_is_used(vulkan_device: Device, table: Path) -> None:
    node = _linear(vulkan_device)
    assert chosen_tiling(node, vulkan_device.info) == default_tiling(node, vulkan_device.info) != BEST
    tilings.keep(table, tilings.device_key(vulkan_device.info), {tilings.node_key(node): BEST})
    assert chosen_tiling(node, vulkan_device.info) == BEST
    other = next(one for one in _nodes(vulkan_device) if one.shader == "gru_layer")
    assert chosen_tiling(other, vulkan_device.info) == default_tiling(other, vulkan_device.info)


def test_tables_of_several_devices_stand_side_by_side(table: Path) -> None:
    tilings.keep(table, "one", {"a": BEST})
    tilings.keep(table, "two", {"a": Tiling()})
    tilings.keep(table, "one", {"b": Tiling()})
    assert tilings.read(table) == {"one": {"a": BEST, "b": Tiling()}, "two": {"a": Tiling()}}
    assert list(table.parent.iterdir()) == [table]


@pytest.mark.parametrize(
    "content",
    ["", "[]", '{"d": 3}', '{"d": {"n": [1, 2, 3]}}', '{"d": {"n": [1, 3, 1, 8]}}', '{"d": {"n": [1, 1, 64, 8]}}'],
)
def test_a_table_that_is_none_is_said_and_left_out(vulkan_device: Device, table: Path, content: str) -> None:
    table.write_text(content)
    with pytest.raises(InputError, match=r"tilings\.json.*: expected "):
        tilings.read(table)
    node = _linear(vulkan_device)
    with pytest.warns(VkcatWarning, match="see vkcat tune"):
        assert chosen_tiling(node, vulkan_device.info) == default_tiling(node, vulkan_device.info)


def test_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(tilings.VARIABLE, "off")
    assert tilings.file() is None


@pytest.mark.parametrize(
    ("tiling", "possible"),
    [
        (BEST, True),
        (Tiling(rows=3), False),
        (Tiling(rows=0), False),
        (Tiling(split=32, lanes=16), False),
        (Tiling(lanes=256), False),
        (Tiling(streams=16, rows=16, lanes=8), True),
        (Tiling(streams=16, rows=32, lanes=8), False),
    ],
)
def test_what_is_possible(tiling: Tiling, possible: bool) -> None:
    assert is_possible(tiling) is possible


def test_command(tmp_path: Path, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice: what was measured is known the second time, and tokens are drawn with it."""
    made = CONFIGS["gru"]
    save_model(tmp_path / "model", made, stored(made).weights)
    run = CliRunner().invoke
    first = run(cli, ["tune", str(tmp_path / "model")], catch_exceptions=False)
    assert first.exit_code == 0
    (entries,) = json.loads(table.read_text()).values()
    assert len(entries) == 10
    assert "10 measured, 0 known before" in first.output
    assert {key.split()[0] for key in entries} == {"gru_cell", "linear", "gru_recurrence", "gru_sequence"}
    rows = {int(word[2:]) for key in entries for word in key.split() if word.startswith("R=")}
    assert rows == set(SIZES), "sequences are read in pieces of these sizes"
    again = run(cli, ["tune", str(tmp_path / "model")], catch_exceptions=False)
    assert "0 measured, 10 known before" in again.output
    assert run(cli, ["run", str(tmp_path / "model"), "--prompt", "a", "--tokens", "2"]).exit_code == 0
    monkeypatch.setenv(tilings.VARIABLE, "off")
    refused = run(cli, ["tune", str(tmp_path / "model")])
    assert isinstance(refused.exception, InputError)
