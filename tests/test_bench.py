"""tools/bench: that it runs from end to end, that it times nothing that is wrong, and the shaders it gives to naga."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import HAS_KOMPUTE, ROOT, absent, plain_environment

from vkcat import glsl
from vkcat.device.interface import Device
from vkcat.ops import OPS
from vkcat.shader import Shader, load
from vkcat.spirv import reflect
from vkcat.validate.ops import validate_op

sys.path.insert(0, str(ROOT / "tools"))

from benchmarks import naga, report
from benchmarks.contender import CONTENDERS, Entry, Settings
from benchmarks.disturbance import Disturbance
from benchmarks.measure import CONFIDENCE, Effort, SceneTimes, estimate, measure
from benchmarks.processes import ContenderError, Environments, _environment
from benchmarks.scene import TOLERANCE, Expected, Scene, make_scene


@pytest.mark.parametrize("threads", [0, 1], ids="threads={}".format)
def test_quick_runs_all_that_is_here(tmp_path: Path, threads: int) -> None:
    file = tmp_path / "results.json"
    only = ("vulkan replay", "vulkan unrolled", "kompute loop", "cuda")
    done = subprocess.run(
        [
            *(sys.executable, str(ROOT / "tools" / "bench"), "--quick", "--json", str(file)),
            *("--threads", str(threads), "--only", *only),
        ],
        env=plain_environment(PYTHONPATH=str(ROOT)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(file.read_text())
    (scene,) = results["scenes"]
    measured = {contender["name"]: contender for contender in scene["contenders"]}
    wanted = {f"vkcat vulkan {name}{part}" for name in ("replay", "unrolled") for part in ("", ", unfused")}
    assert measured.keys() == wanted | ({"kompute loop", "kompute loop, recorded"} if HAS_KOMPUTE else set())
    for contender in measured.values():
        assert 0 < contender["error"] <= TOLERANCE
        assert len(contender["rounds_us"]) == scene["rounds"]
        assert all(0 < us < 1e6 for us in contender["rounds_us"])
    assert "bench: not measured: torch cuda: " in done.stderr
    assert done.stdout == report.tables([results])
    assert done.stdout.startswith("### Kernels in the thread of" if threads == 0 else "### 1 thread for each")
    assert results["machine"]["threads"] == threads


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_lavapipe_and_libraries_are_told_of_their_threads(threads: int) -> None:
    told = _environment(Settings(None, threads))
    assert (told["LP_NUM_THREADS"], told["OMP_NUM_THREADS"]) == (str(threads), str(max(threads, 1)))


@pytest.mark.parametrize(
    ("tokens", "logits"),
    [
        ([[3, 1]], [[1.0, 2.0 + 3 * TOLERANCE]]),
        ([[3, 1]], [[1.0, np.nan]]),
        ([[3, 2]], [[1.0, 2.0]]),
        ([[3]], [[1.0, 2.0]]),
    ],
)
def test_another_result_than_the_references_is_an_error(tokens: list[list[int]], logits: list[list[float]]) -> None:
    expected = Expected(np.array([[3, 1]]), np.array([[1.0, 2.0]]))
    assert expected.error(np.array([[3, 1]]), np.array([[1.0, 2.0]])) == 0
    assert not expected.error(np.array(tokens), np.array(logits)) <= TOLERANCE


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contenders run as a user's processes do."""
    for name in os.environ.keys() - plain_environment().keys():
        monkeypatch.delenv(name)


def _measure(scene: Scene, expected: Expected, *entries: Entry) -> SceneTimes:
    environments = Environments.of([sys.executable], entries)
    effort = Effort(rounds=1, block=1, checked=4)
    return measure(scene, expected, entries, environments, Settings(None, 1), effort, lambda what: None)


REPLAY = next(entry for entry in CONTENDERS if entry.name == "vkcat vulkan replay")


@pytest.mark.usefixtures("plain")
def test_what_ends_or_is_missing_is_said(tmp_path: Path) -> None:
    result = _measure(
        *make_scene("gru", 1, tmp_path / "scene", 4),
        REPLAY,
        Entry("ends", "no_such_module", (), "cpu", ""),
        Entry("missing", "session", ("no_such_package",), "cpu", ""),
        Entry("refused", "session", (), "fused", "", {"backend": "vulkan", "schedule": "no such one", "fuse": True}),
    )
    assert [contender.name for contender in result.contenders] == [REPLAY.name]
    left = {one.name: one for one in result.left_out}
    assert left["ends"].broken
    assert "No module named 'benchmarks.no_such_module'" in left["ends"].why
    assert not left["missing"].broken
    assert left["missing"].why == "no package no_such_package; see tools/setup --bench"
    assert not left["refused"].broken
    assert "no such one" in left["refused"].why


@pytest.mark.usefixtures("plain")
def test_what_is_wrong_is_not_timed(tmp_path: Path) -> None:
    scene, expected = make_scene("gru", 1, tmp_path / "scene", 4)
    wrong = Expected(expected.tokens, expected.logits * (1 + 3 * TOLERANCE))
    with pytest.raises(ContenderError, match="device time, fused: a logit off by .* of the greatest"):
        _measure(scene, wrong, REPLAY)


@pytest.mark.parametrize("count", [6, 7, 20])
def test_the_interval_holds_the_median(count: int) -> None:
    """As often as is said, of a distribution with a long tail whose median is log 2; and not much more often."""
    drawn = np.random.default_rng(count).exponential(1000, (4000, count))
    estimates = [estimate(row) for row in drawn]
    held = np.mean([one.low <= np.log(2) <= one.high for one in estimates])
    assert CONFIDENCE - 0.01 <= held < 1 - 0.002
    assert all(one.low <= one.median <= one.high for one in estimates)


def test_others_are_told_from_ours() -> None:
    """A process that computes for a while is a disturbance, unless it is one of ours."""
    if not Path("/proc/stat").is_file():
        pytest.skip("no /proc/stat here")
    code = "import time\nwhile time.process_time() < 0.5: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as busy:
        begin = time.monotonic()
        theirs, ours = Disturbance([]), Disturbance([busy.pid])
        assert busy.stdout is not None
        busy.stdout.readline()
        taken, rest = theirs.look(), ours.look()
        whole = (time.monotonic() - begin) * (os.cpu_count() or 1)
        busy.communicate(b"\n")
    assert taken is not None
    assert rest is not None
    # What yet others take is in both.
    assert taken - rest == pytest.approx(0.5 / whole, rel=0.2)


def test_products_in_halves_draw_the_same(vulkan_device: Device) -> None:
    ours = load("sample")
    code = naga.without_wide_products(ours)
    assert code is not None
    assert code != ours.code
    results = list(validate_op(vulkan_device, OPS["sample"], {"sample": Shader("sample", code, reflect(code))}))
    assert results
    assert all(result.passed for result in results), [result.problem for result in results]
    assert naga.without_wide_products(load("linear")) is None


def test_frozen_constants_are_gone() -> None:
    if glsl.find_tool("spirv-opt") is None:
        absent("spirv-opt")
    linear = load("linear")
    assert reflect(linear.code).spec
    interface = reflect(naga.frozen(linear.code, linear, (4, 2, 1, 32, 1)))
    assert not interface.spec
    assert interface.bindings == linear.interface.bindings
    assert interface.push == linear.interface.push
    assert interface.local_size == (32, 1, 1)
