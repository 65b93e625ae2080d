"""The ceilings' shaders do what is counted, and a kernel is held against the ceiling that binds it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from vkcat.device.interface import Device, Memory, Slice
from vkcat.profile.ceilings import CHAINS, LOADS, LOCAL, CeilingProbe, Ceilings
from vkcat.profile.roofline import roofline
from vkcat.profile.spread import Spread
from vkcat.shader import load

UNTOUCHED = np.float32(-3.0)


def _bits(number: float) -> int:
    return int(np.float32(number).view(np.uint32))


def _result(device: Device, shader: str, x: Any, push: list[int], spec: int, groups: int) -> float:
    """What a shader leaves in y[0]."""
    y = device.buffer(256, Memory.DEVICE)
    y.write(np.full(64, UNTOUCHED, np.float32).view(np.uint32))
    slices = [Slice(y, 0, 256)]
    if x is not None:
        buffer = device.buffer(x.nbytes, Memory.DEVICE)
        buffer.write(x.view(np.uint32))
        slices.insert(0, Slice(buffer, 0, x.nbytes))
    dispatch = device.dispatch(shader, load(shader), slices, np.array(push, np.uint32), [spec], (groups, 1, 1))
    recording = device.recording()
    recording.record([dispatch])
    recording.submit()
    recording.wait()
    value = float(y.read(4).view(np.float32)[0])
    recording.close()
    device.release(dispatch)
    for part in slices:
        part.buffer.close()
    return value


@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize("groups", [1, 3])
def test_stream_read_reads_every_element_once_a_pass(vulkan_device: Device, loads: int, groups: int) -> None:
    """A power of four in one place at a time: whoever reads it says how often."""
    turns, passes = 11, 3
    count = groups * LOCAL * turns
    for at in (0, 1, 4 * count // 2 + 2, 4 * count - 1):
        x = np.zeros(4 * count, np.float32)
        x[at] = 1
        # With one workgroup a pass gives each invocation what the last gave it; with three another has it.
        seen = passes if groups == 1 else 1
        assert _result(vulkan_device, "stream_read", x, [count, passes, _bits(seen)], loads, groups) == seen
        assert _result(vulkan_device, "stream_read", x, [count, passes, _bits(-7)], loads, groups) == UNTOUCHED


@pytest.mark.parametrize("chains", CHAINS)
def test_multiply_add_does_every_turn(vulkan_device: Device, chains: int) -> None:
    """From lane + c, 4 n times one and plus two, in four components of each of c sums; lane 5 is looked for."""
    turns = 4 * 9
    total = sum(4 * (5 + c + 2 * turns) for c in range(chains))
    push = [turns, _bits(1), _bits(2), _bits(total)]
    assert _result(vulkan_device, "multiply_add", None, push, chains, 1) == total
    halved = 4 * (2.0 * chains)
    push = [4 * 40, _bits(0.5), _bits(1), _bits(halved)]
    assert _result(vulkan_device, "multiply_add", None, push, chains, 1) == halved
    push[-1] = _bits(-7)
    assert _result(vulkan_device, "multiply_add", None, push, chains, 1) == UNTOUCHED


def test_ceilings_are_measured(vulkan_device: Device) -> None:
    probe = CeilingProbe(vulkan_device, 300_001)
    probe.sample(3)
    found = probe.ceilings(1)
    probe.close()
    assert found.working_set_bytes == 300_000
    # No processor is slower than this, none that there is faster: a factor of a thousand in a unit shows.
    assert 0.01 < found.read_gbytes_per_s.median < 1e5
    assert 0.1 < found.multiply_add_gflops.median < 1e6
    assert 0 < found.dispatch_us.median < 1e5
    assert "vec4" in found.read_variant


def _flat(value: float) -> Spread:
    return Spread(value, value, value)


@pytest.mark.parametrize(
    ("nbytes", "operations", "us", "ceiling", "share"),
    [
        # 10 GB/s and 40 GFLOP/s: 10^5 bytes take 10 us, 4 10^5 operations as long, an empty dispatch 2 us.
        (100_000, 200_000, 20.0, "read", 50.0),
        (100_000, 1_600_000, 80.0, "multiply-add", 50.0),
        (1_000, 500, 16.0, "dispatch", 25.0),
    ],
)
def test_roofline(nbytes: int, operations: int, us: float, ceiling: str, share: float) -> None:
    top = Ceilings("vulkan", 1, _flat(10), "", _flat(40), "", _flat(2))
    found = roofline("linear", "replay", 2, nbytes, operations, us, top)
    assert (found.ceiling, found.share_percent) == (ceiling, pytest.approx(share))
    assert found.gbytes_per_s == pytest.approx(nbytes * 1e-9 / (us * 1e-6))
    assert found.gflops == pytest.approx(operations * 1e-9 / (us * 1e-6))
    assert found.operations_per_byte == operations / nbytes
