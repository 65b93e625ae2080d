"""Reflection: of our shaders, of hand-written ones, and of bytes that are no shader."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vkcat import glsl
from vkcat.errors import ShaderError
from vkcat.shader import SOURCES, load
from vkcat.spirv import reflect


def test_gru_cell() -> None:
    interface = load("gru_cell").interface
    names = [binding.name for binding in interface.bindings]
    assert names == ["x", "h", "w_ih", "w_hh", "b_ih", "b_hh", "mode", "h_next"]
    assert [binding.index for binding in interface.bindings] == list(range(8))
    assert [binding.writes for binding in interface.bindings] == [False] * 7 + [True]
    assert [binding.reads for binding in interface.bindings] == [True] * 7 + [False]
    assert interface.bindings[6].dtype == "uint32"
    assert interface.push == {"B": 0, "I": 4, "H": 8}
    assert interface.spec == {"TILE": (0, 1), "ROWS": (1, 1), "SPLIT": (2, 1), "LANES": (3, 64), "PANEL": (4, 1)}
    assert interface.local_size == (64, 1, 1)
    assert interface.sized({"LANES": 16}) == (16, 1, 1)


def test_argmax_shared_memory() -> None:
    interface = load("argmax").interface
    assert interface.shared({}) == 64 * 8
    assert interface.shared({"LANES": 16}) == 16 * 8


@pytest.mark.parametrize(
    ("text", "local_size"),
    [
        ("layout(local_size_x = 8, local_size_y = 4, local_size_z = 2) in;", (8, 4, 2)),
        ("layout(local_size_x_id = 3) in; layout(local_size_y = 5) in;", (1, 5, 1)),
        ("", (1, 1, 1)),
    ],
)
def test_local_size(tmp_path: Path, text: str, local_size: tuple[int, int, int]) -> None:
    file = tmp_path / "s.comp"
    file.write_text(
        f"#version 450\n{text}\n"
        "layout(binding = 2) buffer A { int a[]; };\n"
        "void main() { a[gl_WorkGroupSize.x] = 1; }\n"
    )
    interface = reflect(glsl.compile_file(file, SOURCES / "include"))
    assert interface.local_size == local_size
    assert [(b.index, b.name, b.dtype, b.reads, b.writes) for b in interface.bindings] == [
        (2, "a", "int32", True, True)
    ]


@given(st.binary(max_size=200))
@settings(max_examples=200, deadline=None)
def test_bytes_that_are_no_shader(data: bytes) -> None:
    with pytest.raises(ShaderError):
        reflect(data)


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_a_damaged_shader_is_refused_or_read(data: st.DataObject) -> None:
    code = bytearray(load("linear").code)
    for _ in range(data.draw(st.integers(1, 4))):
        code[data.draw(st.integers(20, len(code) - 1))] = data.draw(st.integers(0, 255))
    try:
        reflect(bytes(code))
    except ShaderError as error:
        assert str(error)
