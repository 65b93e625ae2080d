"""Choice of a device, limits, timestamps, buffers, and closing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from conftest import HAS_KOMPUTE
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

import vkcat
from vkcat import runner
from vkcat.cli import cli
from vkcat.device.backends import open_device
from vkcat.device.interface import Device, DeviceInfo, Limits, Memory, Slice
from vkcat.device.limits import check_dispatch, check_shader
from vkcat.device.select import select
from vkcat.device.timestamps import elapsed_ns
from vkcat.device.vulkan import instance
from vkcat.errors import DeviceError, InputError, VkcatWarning
from vkcat.executor import Executor
from vkcat.graph import Graph, Role, Tensor
from vkcat.shader import load

PUSH = np.array([1, 1], np.uint32)

BACKENDS = ["vulkan", pytest.param("kompute", marks=pytest.mark.skipif(not HAS_KOMPUTE, reason="kp is not installed"))]
LIMITS = Limits(1 << 27, 1 << 30, 16, (65535,) * 3, (128, 128, 64), 128, 16 << 10, 128, 4)
INFO = DeviceInfo(0, "Test", "cpu", (1, 1, 0), "none", 4, False, False, 64, 1.0, 0, LIMITS)


def _devices(*kinds: str) -> list[DeviceInfo]:
    return [structs.replace(INFO, index=at, name=f"{kind} {at}", kind=kind) for at, kind in enumerate(kinds)]


@pytest.mark.parametrize(
    ("kinds", "chosen"),
    [
        (["cpu", "integrated", "discrete"], 2),
        (["cpu", "virtual", "integrated"], 2),
        (["cpu", "virtual"], 1),
        (["other", "cpu"], 1),
        (["discrete", "discrete"], 0),
    ],
)
def test_order(kinds: list[str], chosen: int) -> None:
    info, reason = select(_devices(*kinds))
    assert info.index == chosen
    assert info.kind in reason


def test_by_index_and_part_of_a_name() -> None:
    devices = _devices("cpu", "integrated", "discrete")
    assert select(devices, "1")[0].index == 1
    assert select(devices, "CPU")[0].index == 0
    with pytest.raises(DeviceError, match=r"device 'e': expected one of \(0: cpu 0, .*got 2 matches"):
        select(devices, "e")
    with pytest.raises(DeviceError, match="got 0 matches"):
        select(devices, "7")


def test_two_devices_of_one_name_are_told_apart_by_index() -> None:
    """A number that is part of a name, as a model's, is no index unless there is such a one."""
    card = structs.replace(INFO, name="GeForce RTX 3060", kind="discrete")
    cpu = structs.replace(INFO, name="llvmpipe", index=2)
    devices = [card, structs.replace(card, index=1), cpu]
    assert select(devices)[0].index == 0
    assert select(devices, "1")[0].index == 1
    with pytest.raises(DeviceError, match=r"device '3060': expected one of \(0: GeForce RTX 3060, 1: .*got 2 matches"):
        select(devices, "3060")
    assert select(devices[1:], "3060")[0].index == 1


def test_a_cpu_that_nobody_asked_for_is_told_of(device_name: str, g2p: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are CPUs alone here. The command line tells beside its output, Python warns; neither of a named one."""
    monkeypatch.setattr(runner, "_kept", {})
    with pytest.warns(VkcatWarning, match="device: expected a GPU, got .*, a CPU; see `vkcat devices`"):
        vkcat.load(g2p).close()
    vkcat.load(g2p).close()
    vkcat.load(g2p, device_name).close()
    for device in runner._kept.values():
        device.close()
    said = [
        CliRunner().invoke(cli, ["run", str(g2p), "hi", *named]).stderr for named in ((), ("--device", device_name))
    ]
    assert "a CPU, as no GPU was found; see `vkcat devices`" in said[0]
    assert said[1] == ""


def test_unusable_devices_are_passed_over_and_named() -> None:
    old = structs.replace(INFO, name="Old", kind="discrete", api_version=(1, 0, 3))
    mute = structs.replace(INFO, name="Mute", kind="discrete", index=1, compute_queue_family=None)
    good = structs.replace(INFO, name="Good", index=2)
    assert select([old, mute, good])[0].name == "Good"
    with pytest.raises(DeviceError, match="Old: Vulkan 1.0.3, below 1.1; Mute: no compute queue"):
        select([old, mute])
    with pytest.raises(DeviceError, match="device Old: expected compute and Vulkan 1.1"):
        select([old, mute, good], "old")
    with pytest.raises(DeviceError, match="no Vulkan device"):
        select([])


@pytest.mark.parametrize(
    ("limit", "value", "message"),
    [
        ("max_compute_work_group_invocations", 32, "at most 32 invocations a workgroup, got 64"),
        ("max_compute_shared_memory_size", 256, "at most 256 bytes of shared memory, got 512"),
        ("max_push_constants_size", 4, "at most 4 bytes of push constants, got 8"),
        ("max_per_stage_descriptor_storage_buffers", 1, "at most 1 storage buffers, got 2"),
        ("max_compute_work_group_size", (16, 1, 1), "at most 16 invocations along x, got 64"),
    ],
)
def test_shader_beyond_a_limit(limit: str, value: object, message: str) -> None:
    check_shader(load("argmax"), (64,), INFO)
    small = structs.replace(INFO, limits=structs.replace(LIMITS, **{limit: value}))
    with pytest.raises(DeviceError, match=f"argmax: Test: expected {message}"):
        check_shader(load("argmax"), (64,), small)


@pytest.mark.parametrize(
    ("stages", "operations", "arithmetic"),
    [(0x20, 0x5, True), (0x3F, 0xFF, True), (0x20, 0x3, False), (0x10, 0x5, False)],
)
def test_subgroup_arithmetic(monkeypatch: pytest.MonkeyPatch, stages: int, operations: int, arithmetic: bool) -> None:
    """Among the operations, and compute among the stages that have them."""
    vk = instance.api()

    def report(physical: Any, properties: Any) -> None:
        found = vk.ffi.cast("VkPhysicalDeviceSubgroupProperties *", properties.pNext)
        found.subgroupSize, found.supportedStages, found.supportedOperations = 32, stages, operations

    names = (
        "ffi",
        "VkPhysicalDeviceSubgroupProperties",
        "VkPhysicalDeviceProperties2",
        "VK_SHADER_STAGE_COMPUTE_BIT",
        "VK_SUBGROUP_FEATURE_ARITHMETIC_BIT",
    )
    fake = SimpleNamespace(**{name: getattr(vk, name) for name in names})
    fake.lib = SimpleNamespace(vkGetPhysicalDeviceProperties2=report)
    monkeypatch.setattr(instance, "api", lambda: fake)
    assert instance._subgroup(None, (1, 1, 0)) == (32, arithmetic)
    assert instance._subgroup(None, (1, 0, 0)) == (0, False)


class _NoBuffer:
    nbytes = 0


@pytest.mark.parametrize("groups", [(65535, 1, 1), (1, 65535, 65535)])
def test_group_count_at_the_limit(groups: tuple[int, int, int]) -> None:
    slices = [Slice(_NoBuffer(), 0, 16)] * 2  # type: ignore[arg-type]
    check_dispatch("argmax", load("argmax"), slices, PUSH, groups, INFO)


@pytest.mark.parametrize("groups", [(65536, 1, 1), (1, 0, 1), (1, 1, 65536)])
def test_group_count_beyond_the_limit(groups: tuple[int, int, int]) -> None:
    slices = [Slice(_NoBuffer(), 0, 16)] * 2  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="argmax: expected 1 to 65535 workgroups along"):
        check_dispatch("argmax", load("argmax"), slices, PUSH, groups, INFO)


def test_missing_binding_oversized_range_and_push_constants() -> None:
    part = Slice(_NoBuffer(), 0, 16)  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="argmax: expected 8 bytes of push constants, got 4"):
        check_dispatch("argmax", load("argmax"), [part, part], PUSH[:1], (1, 1, 1), INFO)
    with pytest.raises(DeviceError, match="argmax: expected 2 bindings, got 1"):
        check_dispatch("argmax", load("argmax"), [part], PUSH, (1, 1, 1), INFO)
    large = structs.replace(part, size=(1 << 27) + 4)
    with pytest.raises(DeviceError, match="argmax: x: expected at most 134217728 bytes"):
        check_dispatch("argmax", load("argmax"), [large, part], PUSH, (1, 1, 1), INFO)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**30), st.sampled_from([36, 48, 64]), st.sampled_from([1.0, 83.33]))
def test_elapsed_over_wraps_and_garbage_bits(begin: int, ticks: int, bits: int, period: float) -> None:
    end = ((begin + ticks) & ((1 << bits) - 1)) | (begin & ~((1 << bits) - 1))
    assert elapsed_ns(begin, end, period, bits) == pytest.approx(ticks * period)


@pytest.mark.parametrize("memory", Memory)
@pytest.mark.parametrize("words", [1, 63, 257])
def test_buffer_round_trip(device: Device, memory: Memory, words: int) -> None:
    buffer = device.buffer(4 * words, memory)
    sent = np.random.default_rng(words).integers(0, 2**32, words, dtype=np.uint32)
    buffer.write(sent)
    assert np.array_equal(buffer.read(4 * words), sent)
    buffer.write(sent[:1] + np.uint32(1), 4 * (words - 1))
    assert buffer.read(4, 4 * (words - 1))[0] == sent[0] + np.uint32(1)
    assert np.array_equal(buffer.read(4 * words)[: words - 1], sent[: words - 1])
    buffer.close()
    buffer.close()


def test_staging_copies_of_more_than_one_piece(vulkan_device: Device) -> None:
    words = (20 << 20) // 4 + 3
    buffer = vulkan_device.buffer(4 * words, Memory.DEVICE)
    sent = np.arange(words, dtype=np.uint32)
    buffer.write(sent)
    assert np.array_equal(buffer.read(4 * words), sent)
    buffer.close()


@pytest.mark.parametrize(
    "backend",
    ["vulkan", pytest.param("kompute", marks=pytest.mark.skipif(not HAS_KOMPUTE, reason="kp is not installed"))],
)
@pytest.mark.parametrize(
    "ending",
    [
        "device.close(); buffer.close(); executor.close()",
        "buffer.close(); device.close()",
        "pass",
        "raise SystemExit(0)",
    ],
)
def test_any_order_of_closing_and_leaving(device_name: str, backend: str, ending: str) -> None:
    """In a process of its own: a crash would take the tests with it."""
    code = f"""
import numpy as np, vkcat
from vkcat.device.interface import Memory
from vkcat.executor import Executor
from vkcat.graph import Graph, Role, Tensor
device = vkcat.open_device({backend!r}, {device_name!r})
buffer = device.buffer(64, Memory.DEVICE)
graph = Graph("g")
x = Tensor("x", (2, 5), "float32", Role.INPUT)
(index,) = graph.add("argmax", "a", x=x)
graph.output(index)
executor = Executor(device, [graph], "replay")
executor.write(x, np.eye(2, 5, 1, dtype=np.float32))
executor.step("g")
assert executor.read(index).tolist() == [1, 2]
{ending}
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_closed_device_is_named(backend: str, device_name: str, g2p: Path) -> None:
    device = open_device(backend, device_name)
    session = vkcat.load(g2p, device)
    assert session.transduce([]) == []
    with pytest.raises(InputError, match="texts: expected a sequence of texts, got one text"):
        session.transduce("abc")
    device.close()
    for use in (
        lambda: vkcat.gru(np.ones((1, 1, 4)), np.ones((9, 4)), np.ones((9, 3)), device=device),
        lambda: session.transduce(["hi"]),
        lambda: device.buffer(64, Memory.DEVICE),
    ):
        with pytest.raises(DeviceError, match="expected an open device, got one that has been closed"):
            use()
    session.close()


def test_a_closed_session_is_named(vulkan_device: Device, g2p: Path) -> None:
    session = vkcat.load(g2p, vulkan_device)
    session.close()
    with pytest.raises(DeviceError, match="executor: expected one that is open"):
        session.transduce(["hi"])
    with pytest.raises(InputError, match="batch: expected an integer of at least 1, got 0"):
        vkcat.load(g2p, vulkan_device, batch=0)
    with pytest.raises(DeviceError, match="backend: expected one of vulkan, kompute, got 'cuda'"):
        open_device("cuda")


def test_an_executor_that_cannot_be_made_leaves_nothing(vulkan_device: Any) -> None:
    """The second dispatch needs more workgroups than there are: the first one's things are released."""
    graph = Graph("g")
    ids = Tensor("ids", (70_000,), "uint32", Role.INPUT)
    table = Tensor("table", (3, 4), "float32", Role.WEIGHT)
    small = Tensor("small", (2,), "uint32", Role.INPUT)
    graph.add("embedding", "fits", ids=small, table=table)
    graph.add("embedding", "too_many", ids=ids, table=table)
    held = len(vulkan_device._core._owned), len(vulkan_device._sets)
    with pytest.raises(DeviceError, match="expected 1 to 65535 workgroups along y, got 70000"):
        Executor(vulkan_device, [graph])
    assert (len(vulkan_device._core._owned), len(vulkan_device._sets)) == held
