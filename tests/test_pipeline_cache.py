"""The pipeline cache on disk: whose bytes a driver is given, and what several processes and full folders leave."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path
from threading import Event, active_count
from typing import Any

import pytest
from conftest import DRIVERS, opened
from hypothesis import given, settings
from hypothesis import strategies as st

import vkcat
from vkcat.device.backends import open_device
from vkcat.device.vulkan import cache_file, pipeline
from vkcat.device.vulkan.cache_file import Driver, fits, read, user_folder, write
from vkcat.device.vulkan.pipeline_cache import PipelineCache
from vkcat.errors import InputError, VkcatWarning
from vkcat.executor import Executor, device_packing
from vkcat.graph import Graph, Role, Tensor
from vkcat.model import build
from vkcat.parameters import default_tiling, parameters, shader_names
from vkcat.shader import Shader, load

DRIVER = Driver(0x10DE, 0x2330, 7, bytes(range(16)))
HEAD = struct.pack("<IIII16s", 32, 1, DRIVER.vendor, DRIVER.device, DRIVER.uuid)
DATA = HEAD + b"what only the driver understands"


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {}, "/home/me/.cache/vkcat"),
        ("linux", {"XDG_CACHE_HOME": "/fast"}, "/fast/vkcat"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, "/home/me/.cache/vkcat"),
        ("darwin", {"XDG_CACHE_HOME": "/fast"}, "/home/me/Library/Caches/vkcat"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/vkcat/Cache"),
        ("win32", {}, "/home/me/AppData/Local/vkcat/Cache"),
        ("linux", {"VKCAT_PIPELINE_CACHE": "/mine", "XDG_CACHE_HOME": "/fast"}, "/mine"),
        ("win32", {"VKCAT_PIPELINE_CACHE": "off"}, None),
    ],
)
def test_the_users_folder(platform: str, environment: dict[str, str], expected: str | None) -> None:
    folder = user_folder(platform, environment, lambda: Path("/home/me"))
    assert folder == (None if expected is None else Path(expected))


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said how to have a cache, and the device works."""

    def home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", home)
    monkeypatch.delenv("VKCAT_PIPELINE_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    said = "pipeline cache: expected a home folder for it, got none; set VKCAT_PIPELINE_CACHE to a folder, or off"
    with pytest.warns(VkcatWarning, match=said):
        device = open_device("vulkan", "llvmpipe")
    _small_executor(device).close()
    device.close()


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "er" / DRIVER.file("abc")
    write(path, DRIVER, DATA)
    assert read(path, DRIVER) == DATA
    write(path, DRIVER, DATA + b"more")
    assert read(path, DRIVER) == DATA + b"more"
    assert os.listdir(path.parent) == [path.name]
    assert read(path.parent / "none.bin", DRIVER) == read(path / "none.bin", DRIVER) == b""
    with pytest.raises(InputError, match="expected a pipeline cache that can be read, got Is a directory"):
        read(path.parent, DRIVER)


def test_drivers_and_shaders_have_files_of_their_own() -> None:
    others = [
        Driver(1, 0x2330, 7, DRIVER.uuid),
        Driver(0x10DE, 0x2330, 8, DRIVER.uuid),
        Driver(0x10DE, 1, 7, b"u" * 16),
    ]
    names = {driver.file("abc") for driver in (DRIVER, *others)} | {DRIVER.file("abd")}
    assert len(names) == 5


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_damaged_or_cut_file_is_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.bin"
    write(path, DRIVER, DATA)
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    else:
        del content[data.draw(st.integers(0, len(content) - 1)) :]
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"damaged.bin: expected a whole pipeline cache of driver version 0x7, got"):
        read(path, DRIVER)


@pytest.mark.parametrize("field", ["vendor", "device", "version", "uuid"])
def test_another_drivers_file_is_refused(tmp_path: Path, field: str) -> None:
    changed = {"uuid": b"another driver's"} if field == "uuid" else {field: 1}
    other = Driver(**{"vendor": 0x10DE, "device": 0x2330, "version": 7, "uuid": DRIVER.uuid} | changed)  # type: ignore[arg-type]
    write(tmp_path / "c.bin", other, DATA)
    with pytest.raises(InputError, match="got another driver's"):
        read(tmp_path / "c.bin", DRIVER)


@pytest.mark.parametrize("at", [0, 4, 8, 12, 16, 31])
def test_data_with_another_head_of_vulkans_is_refused(tmp_path: Path, at: int) -> None:
    """A whole file of this driver's name, in which a driver put what is not for it."""
    wrong = bytearray(DATA)
    wrong[at] ^= 0x20
    assert fits(DATA, DRIVER)
    assert not fits(bytes(wrong), DRIVER)
    assert not fits(DATA[:31], DRIVER)
    write(tmp_path / "c.bin", DRIVER, bytes(wrong))
    with pytest.raises(InputError, match="got one with another driver's data"):
        read(tmp_path / "c.bin", DRIVER)


def test_the_folder_is_bounded(tmp_path: Path) -> None:
    """The oldest go first, the newest never, and what is not ours stays."""
    (tmp_path / "note.txt").write_text("mine")
    for age, name in enumerate(["new.bin", "middle.bin", "old.bin", ".c.bin.77.0", ".c.bin.78.0"]):
        (tmp_path / name).write_bytes(b"x" * 1000)
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    os.utime(tmp_path / ".c.bin.78.0")
    write(tmp_path / "c.bin", DRIVER, DATA, most=2200)
    assert {entry.name for entry in tmp_path.iterdir()} == {"c.bin", "new.bin", "middle.bin", "note.txt", ".c.bin.78.0"}
    write(tmp_path / "c.bin", DRIVER, DATA, most=1)
    assert {entry.name for entry in tmp_path.iterdir()} == {"c.bin", "note.txt", ".c.bin.78.0"}


def _small_executor(device: Any) -> Executor:
    graph = Graph("g")
    x = Tensor("x", (2, 5), "float32", Role.INPUT)
    (index,) = graph.add("argmax", "a", x=x)
    graph.output(index)
    return Executor(device, [graph])


KEPT = b"what these drivers do not keep"


def _let_it_keep(monkeypatch: pytest.MonkeyPatch, kept: bytes = KEPT) -> list[bytes]:
    """A driver that keeps something, and the list of what it is given, which it leaves alone."""
    given: list[bytes] = []
    create, data = PipelineCache._create, PipelineCache._data
    monkeypatch.setattr(PipelineCache, "_create", lambda self, data: given.append(data) or create(self, data))
    monkeypatch.setattr(PipelineCache, "_data", lambda self: data(self)[:32] + kept)
    return given


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_device_keeps_and_reads_its_file(driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCAT_PIPELINE_CACHE", str(tmp_path / "cache"))
    given = _let_it_keep(monkeypatch)
    for _ in range(2):
        device = opened(driver)
        _small_executor(device)
        device.close()
    (path,) = (tmp_path / "cache").iterdir()
    content = path.read_bytes()
    assert given[0] == b""
    assert given[1].endswith(KEPT)
    assert content.endswith(given[1])
    assert len(given) == 2
    # Damage is said once, and the next file is whole again.
    path.write_bytes(content[:-1])
    with pytest.warns(VkcatWarning, match="got a damaged one; it is left out, and another will"):
        device = opened(driver)
    device.close()
    assert path.read_bytes() == content
    assert given[2:] == [b""]


@pytest.mark.parametrize("driver", DRIVERS)
def test_what_another_wrote_meanwhile_is_merged(driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCAT_PIPELINE_CACHE", str(tmp_path))
    first = opened(driver)
    given = _let_it_keep(monkeypatch)
    opened(driver).close()
    assert given == [b""]
    first.close()
    assert given[1:] == [read(next(tmp_path.iterdir()), first._cache._driver)]


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_driver_that_keeps_nothing_has_no_file(driver: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCAT_PIPELINE_CACHE", str(tmp_path))
    _let_it_keep(monkeypatch, b"")
    device = opened(driver)
    _small_executor(device)
    device.close()
    assert not list(tmp_path.iterdir())


def test_off_and_a_folder_that_cannot_be_made(
    device_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _let_it_keep(monkeypatch)
    monkeypatch.setenv("VKCAT_PIPELINE_CACHE", "off")
    open_device("vulkan", device_name).close()
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    monkeypatch.setenv("VKCAT_PIPELINE_CACHE", str(tmp_path / "file" / "cache"))
    device = open_device("vulkan", device_name)
    with pytest.warns(VkcatWarning, match="cache: expected a folder for pipeline caches, got Not a directory"):
        device.close()


def test_what_is_too_large_is_not_kept(device_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VKCAT_PIPELINE_CACHE", str(tmp_path))
    monkeypatch.setattr(cache_file, "MOST_BYTES", 40)
    _let_it_keep(monkeypatch)
    device = open_device("vulkan", device_name)
    with pytest.warns(
        VkcatWarning, match=f"pipeline cache of {device_name}.*: expected at most 40 bytes with .*, got 62; the"
    ):
        device.close()
    assert not list(tmp_path.iterdir())


def test_processes_at_once_leave_a_whole_file(
    device_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reads, merges and replaces the one file again and again, in its own time."""
    code = """
import os, sys, vkcat
from vkcat.device.vulkan.pipeline_cache import PipelineCache
from vkcat.shader import Shader, load
data = PipelineCache._data
for name in sys.argv[2:]:
    PipelineCache._data = lambda self: data(self)[:32] + name.encode() * os.getpid()
    device = vkcat.open_device('vulkan', sys.argv[1])
    with device.compiling([(load(name), ())]):
        pass
    device.close()
"""
    names = ("short_conv", "silu", "add", "modulation", "depth_dwa")
    environment = {**os.environ, "VKCAT_PIPELINE_CACHE": str(tmp_path)}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", code, device_name, *names], env=environment, stderr=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    assert [process.communicate()[1] for process in running] == [""] * 4
    (path,) = tmp_path.iterdir()
    assert not path.name.startswith(".")
    monkeypatch.setenv("VKCAT_PIPELINE_CACHE", str(tmp_path))
    given = _let_it_keep(monkeypatch)
    device = open_device("vulkan", device_name)
    assert len(given[0]) > 32, "whole, or it would be left out and that said"
    device.close()


def test_a_plan_is_compiled_at_once_and_never_again(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All shaders of all graphs are known before the first dispatch is prepared."""
    graphs = tuple(build(vkcat.initial_model("gru-l3", seed=1).config, 2).graphs.values())
    device = open_device("vulkan", device_name)
    created: list[tuple[str, tuple[int, ...]]] = []
    create = pipeline.Pipelines._create
    monkeypatch.setattr(
        pipeline.Pipelines,
        "_create",
        lambda self, shader, spec: created.append((shader.name, tuple(spec))) or create(self, shader, spec),
    )
    at_first_bind: list[int] = []
    bind = pipeline.Pipelines.get
    monkeypatch.setattr(
        pipeline.Pipelines, "get", lambda self, *given: at_first_bind.append(len(created)) or bind(self, *given)
    )
    executor = Executor(device, graphs)
    nodes = [node for graph in graphs for node in graph.nodes]
    panel = {node: device_packing(device).panel if executor.plan.paneled & set(node.reads) else 1 for node in nodes}
    wanted = {
        (name, parameters(node, load(name), default_tiling(node, device.info), panel[node]).spec)
        for node in nodes
        for name in shader_names(node.shader, device.info)[:1]
    }
    assert sorted(created) == sorted(wanted)
    assert set(at_first_bind) == {len(wanted)}
    again = Executor(device, graphs)
    assert len(created) == len(wanted) == device.pipeline_counts[0]
    executor.close()
    again.close()
    device.close()
    assert max(max(spec, default=0) for _, spec in wanted) > 1, "some are specialised"


def _specialised(tile: int) -> list[tuple[Shader, tuple[int, ...]]]:
    return [(load(name), (tile, 1, 1, 8, 1)) for name in ("linear", "gru_cell", "mlp", "norm_linear")]


def test_an_error_in_a_thread_is_raised(vulkan_device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Any, shader: Any, spec: Any) -> Any:
        raise InputError(f"{shader.name} is broken")

    monkeypatch.setattr(pipeline.Pipelines, "_create", broken)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    with pytest.raises(InputError, match="is broken"), vulkan_device.compiling(_specialised(3)):
        pass


def test_the_cache_is_what_pipelines_come_from() -> None:
    """SwiftShader tells of a hit in a cache that it filled itself; a second set of pipelines has nothing but hits."""
    device: Any = opened("swiftshader")
    wanted = [(load(name), ()) for name in ("short_conv", "silu", "add")]
    with device.compiling(wanted):
        pass
    assert device.pipeline_counts == (3, 0)
    second = pipeline.Pipelines(device._core, device._cache)
    with second.compiling(wanted):
        pass
    assert second.counts == (3, 3)
    second.close()
    device.close()


def test_a_block_that_fails_ends_the_compiling_beside_it(vulkan_device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = Event()

    def broken(self: Any, shader: Any, spec: Any) -> None:
        begun.set()
        raise InputError("too late to tell")

    monkeypatch.setattr(pipeline.Pipelines, "_create", broken)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    threads = active_count()

    def fail() -> None:
        with vulkan_device.compiling(_specialised(7)):
            assert begun.wait(10)
            raise InputError("a wrong weight")

    with pytest.raises(InputError, match="a wrong weight"):
        fail()
    assert active_count() == threads
