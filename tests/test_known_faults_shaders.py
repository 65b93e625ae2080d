"""What shaders are handed, and by which index they count: constants as bits, lanes in 2-D workgroups, masked blocks.

Met publicly: integer push constants read as floats (KomputeProject/kompute#425), a first block of which all is masked
(pytorch/pytorch#130014), a lane's index in its subgroup taken for that in its workgroup.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from numeric_cases import WAYS
from test_numerics_rings import by_head, filled

from vkcat.device.interface import Device, Memory, Slice, ToHost
from vkcat.device.kompute_calls import numbered
from vkcat.errors import DeviceError
from vkcat.ops import OPS
from vkcat.ops.gates import HOLD
from vkcat.shader import SOURCES, Shader, load_file
from vkcat.validate.ops import validate_op

BITS = np.array([1, 0x80000000, 0x7FC00001, 0xFF800001, 0xFFFFFFFF, (1 << 24) + 1, 0x3F800000, 7], np.uint32)
"""Denormal, -0, a quiet and a signalling NaN, all ones, a number that float32 rounds, 1.0 and an index."""

GIVEN_BACK = """#version 450
layout(local_size_x = 1) in;
layout(constant_id = 1) const uint A = 0u;
layout(constant_id = 7) const uint B = 0u;
layout(push_constant) uniform Push { uint c0; uint c1; uint c2; uint c3; uint c4; uint c5; uint c6; uint c7; };
layout(binding = 0) writeonly buffer Y { uint y[]; };
void main() {
    uint all_[8] = uint[8](c0, c1, c2, c3, c4, c5, c6, c7);
    for (uint i = 0u; i < 8u; ++i) y[i] = all_[i];
    y[8] = A;
    y[9] = B;
}
"""


def _compiled(folder: Path, name: str, text: str) -> Shader:
    file = folder / f"{name}.comp"
    file.write_text(text)
    return load_file(name, file)


@pytest.mark.parametrize("at", range(len(BITS)))
def test_push_and_specialisation_constants_arrive_bit_by_bit(device: Device, tmp_path: Path, at: int) -> None:
    shader = _compiled(tmp_path, "given_back", GIVEN_BACK)
    assert [identifier for identifier, _ in shader.interface.spec.values()] == [1, 7]
    push, spec = np.roll(BITS, at), [int(BITS[at]), int(BITS[at - 1])]
    buffer = device.buffer(64, Memory.READBACK)
    part = Slice(buffer, 0, 64)
    dispatch = device.dispatch("given_back", shader, [part], push, spec, (1, 1, 1))
    with closing(buffer), closing(device.recording()) as recording:
        recording.record([dispatch, ToHost((part,))])
        recording.submit()
        recording.wait()
        got = buffer.mapped[:10].tolist()
    device.release(dispatch)
    assert got == [*push.tolist(), *spec]


def test_ids_of_constants_that_kompute_cannot_be_given(tmp_path: Path) -> None:
    """It takes a number for each id from 0 on."""
    shader = _compiled(tmp_path, "given_back", GIVEN_BACK.replace("constant_id = 7", "constant_id = 1024"))
    expected = "given_back: expected ids of specialisation constants below 1024 for kompute, got 1024"
    with pytest.raises(DeviceError, match=expected):
        numbered(shader, [1, 2])


ONE_ROW = "layout(local_size_x = 64) in;"
EIGHT_ROWS = "layout(local_size_x = 8, local_size_y = 8) in;"
LANES = "#extension GL_KHR_shader_subgroup_basic : require\n"


def _add_in_rows(folder: Path, lane: str) -> dict[str, Shader]:
    """`add` by workgroups of 8 x 8, whose invocations find their column and row by this index."""
    text = (SOURCES / "add.comp").read_text()
    for old, new in {
        ONE_ROW: EIGHT_ROWS,
        "gl_GlobalInvocationID.x": f"gl_WorkGroupID.x * 8u + {lane} % 8u",
        "gl_GlobalInvocationID.y": f"gl_WorkGroupID.y * 8u + {lane} / 8u",
        "#include": f"{LANES}#include",
    }.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    return {"add": _compiled(folder, "add", text)}


def test_workgroups_of_rows(device: Device, tmp_path: Path) -> None:
    """A user's shader may have them; ours are of one row, as test_structure checks."""
    shaders = _add_in_rows(tmp_path, "gl_LocalInvocationIndex")
    problems = [result.problem for result in validate_op(device, OPS["add"], shaders)]
    assert len(problems) > 2
    assert not any(problems), problems


def test_the_lane_of_a_subgroup_taken_for_that_of_the_workgroup_is_found(vulkan_device: Device, tmp_path: Path) -> None:
    assert 0 < vulkan_device.info.subgroup_size < 64
    results = list(validate_op(vulkan_device, OPS["add"], _add_in_rows(tmp_path, "gl_SubgroupInvocationID")))
    assert any("not written" in result.problem for result in results)


@pytest.mark.parametrize("entry", [0, 1, 63, 64, 128, 198, 199])
@pytest.mark.parametrize("name", ["ring_attention", "ring_step"])
def test_blocks_of_which_all_is_masked(vulkan_device: Device, name: str, entry: int) -> None:
    """Of 200 entries one has a score above -Inf, whichever block it lies in: it has all of the weight, and no block's
    greatest score, -Inf, is subtracted from itself."""
    way = WAYS[name][0]
    way = replace(way, case=replace(way.case, sizes={**way.case.sizes, "W": 200}))
    arrays = filled(way, 200, HOLD)
    arrays["k_ring"][...] = -np.inf
    arrays["k_ring"][:, entry] = 1.0
    for positive in ("q", "x", "gain", "w_q"):
        if positive in arrays:
            arrays[positive] = np.abs(arrays[positive]) + np.float32(0.1)
    got = way.run(vulkan_device, arrays).got["o"]
    assert np.allclose(got, by_head(way, arrays["v_ring"][:, entry]), rtol=1e-6, atol=0)
