"""What a shader that a user brought may ask for, and that it is refused before a driver or a compiler sees the rest."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from conftest import ROOT, absent
from msgspec.structs import replace

from vkcat import glsl
from vkcat.device.limits import check_shader
from vkcat.errors import DeviceError, ShaderError, VkcatWarning
from vkcat.shader import load, load_file
from vkcat.spirv import reflect

sys.path.insert(0, str(ROOT / "tools"))

from fuzzing.readers import DEVICE

BUFFER = "layout(binding = 0) buffer A { float a[]; };"
MAIN = "void main() { a[0] = 1.0; }"


def _made(tmp_path: Path, text: str, name: str = "s.comp") -> Path:
    file = tmp_path / name
    file.write_text(f"#version 450\n#extension GL_GOOGLE_include_directive : require\n{text}\n")
    return file


def _checked(file: Path) -> None:
    made = load_file("add", file)
    check_shader(made, [default for _, default in made.interface.spec.values()], DEVICE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"layout(local_size_x = 1025) in; {BUFFER} {MAIN}", "WorkGroupSize"),
        (f"layout(local_size_x = 64, local_size_y = 32) in; {BUFFER} {MAIN}", "at most 1024 invocations a workgroup"),
        (f"layout(local_size_x = 0) in; {BUFFER} {MAIN}", "local_size"),
        (
            f"{BUFFER} shared float s[9000]; void main() {{ s[1] = a[0]; a[0] = s[2]; }}",
            "at most 32768 bytes of shared",
        ),
        (
            f"{BUFFER} shared vec4 s[1 << 28]; void main() {{ s[1].x = a[0]; a[0] = s[2].x; }}",
            "bytes of shared memory, got 4294967296",
        ),
        (
            f"{BUFFER} layout(constant_id = 1) const int N = 2147483647; shared float s[N];"
            "void main() { s[1] = a[0]; a[0] = s[2]; }",
            "bytes of shared memory, got 8589934588",
        ),
        (
            f"{BUFFER} layout(push_constant) uniform P {{ {' '.join(f'float p{n};' for n in range(33))} }};"
            "void main() { a[0] = p32; }",
            "at most 128 bytes of push constants, got 132",
        ),
        (f"{BUFFER} layout(push_constant) uniform P {{ vec2 p; }}; void main() {{ a[0] = p.x; }}", "32-bit numbers"),
        ("layout(binding = 40) buffer A { float a[]; };" + MAIN, "at most 32 storage buffers, got 41"),
        (f"{BUFFER} void main() {{ double d = a[0]; a[0] = float(d * d); }}", "got Float64"),
        (
            f"#extension GL_ARB_gpu_shader_int64 : require\n{BUFFER}"
            "void main() { uint64_t n = uint64_t(a[0]); a[0] = float(n * n); }",
            "got Int64",
        ),
        ("layout(binding = 0) buffer A { float a[]; } many[4]; void main() { many[1].a[0] = 1.0; }", "another kind"),
        ("layout(binding = 0) uniform U { float u; }; void main() { if (u > 1.0) return; }", "another kind"),
        (
            "layout(binding = 0, r32ui) uniform uimage2D i; void main() { imageAtomicAdd(i, ivec2(0), 1u); }",
            "another kind",
        ),
        (f"layout(set = 1, binding = 1) buffer B {{ float b[]; }}; {BUFFER} void main() {{ a[0] = b[0]; }}", "set 0"),
    ],
)
def test_what_glsl_asks_for(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises((DeviceError, ShaderError), match=message):
        _checked(_made(tmp_path, text))


@pytest.mark.parametrize(
    "line",
    [
        '#include "../secret"', '#include "{folder}/secret"', "#include <secret>", '#/**/include "../secret"',
        '# /* \n */ include "../secret"', '#inc\\\nlude "../secret"', '#include "link"', '#include "pipe"',
        "#define NAME x\n#include NAME", '#include "nested.glsl"',
    ],
)  # fmt: skip
def test_includes_of_other_folders(tmp_path: Path, line: str) -> None:
    folder = tmp_path / "shaders"
    folder.mkdir()
    (tmp_path / "secret").write_text("password")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "nested.glsl").write_text('#include "../secret"')
    (folder / "beside.glsl").write_text("const float ONE = 1.0;")
    os.mkfifo(folder / "pipe")
    _checked(_made(folder, f'#include "beside.glsl"\n{BUFFER} void main() {{ a[0] = ONE; }}'))
    with pytest.raises(ShaderError, match="expected (#include|a file of at most)") as raised:
        _checked(_made(folder, f"{line.format(folder=tmp_path)}\n{BUFFER} {MAIN}"))
    assert "password" not in str(raised.value)


def test_a_compiler_that_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(glsl, "MOST_SECONDS", 0.2)
    monkeypatch.setattr(glsl, "_compiler_command", lambda *_: ["/bin/sleep", "9"])
    with pytest.raises(ShaderError, match="sleep took more than 0.2 s"):
        load_file("add", _made(tmp_path, f"{BUFFER} {MAIN}"))


@pytest.mark.parametrize("suffix", [".comp", ".spv"])
def test_a_file_that_is_too_long(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"s{suffix}"
    with file.open("wb") as opened:
        opened.truncate((16 << 20) + 1)
    with pytest.raises(ShaderError, match="at most 1048576 bytes|more than 16777216 bytes"):
        load_file("add", file)


def _words(*changes: tuple[int, int]) -> bytes:
    """`add` with words that have one value given another, in what is declared."""
    code = bytearray(load("add").code)
    for old, new in changes:
        at = code.index(old.to_bytes(4, "little"))
        code[at : at + 4] = new.to_bytes(4, "little")
    return bytes(code)


def _entry_again(code: bytes) -> bytes:
    at, found = 20, b""
    while at < len(code):
        count = 4 * int.from_bytes(code[at + 2 : at + 4], "little")
        if code[at : at + 2] == b"\x0f\0":
            found = code[at : at + count]
            break
        at += count
    return code[:at] + found + code[at:]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (_words((0x00010300, 0x00010600)), "SPIR-V 1.3 or older"),
        (_entry_again(load("add").code), "one entry point"),
        (load("add").code.replace(b"main", b"mane"), "one entry point, 'main' of stage 5, compute, got 'mane'"),
        (load("add").code[:12] + b"\xff\xff\xff\xff" + load("add").code[16:], "of at most 4194303 ids"),
    ],
    ids=["newer", "two entry points", "another name", "ids"],
)
def test_modules(code: bytes, message: str) -> None:
    with pytest.raises(ShaderError, match=message):
        reflect(code)


def test_a_vertex_shader(tmp_path: Path) -> None:
    compiler = glsl.find_tool("glslangValidator")
    if compiler is None:
        absent("glslangValidator")
    source, made = tmp_path / "s.vert", tmp_path / "s.spv"
    source.write_text("#version 450\nvoid main() { gl_Position = vec4(0.0); }\n")
    glsl.run_tool([compiler, "--quiet", "-V", "--target-env", glsl.TARGET, "-o", str(made), str(source)], "s")
    with pytest.raises(ShaderError, match="'main' of stage 5, compute, got 'main' of stage 0"):
        load_file("add", made)


def test_structs_of_structs_take_no_time() -> None:
    """Each of two of the one before: 2^60 numbers in shared memory."""
    words = [
        0x07230203,
        0x00010300,
        0,
        200,
        0,
        2 << 16 | 17,
        1,
        5 << 16 | 15,
        5,
        1,
        *_text("main"),
        3 << 16 | 22,
        2,
        32,
    ]
    for at in range(3, 63):
        words += [4 << 16 | 30, at, at - 1, at - 1]
    words += [4 << 16 | 32, 100, 4, 62, 4 << 16 | 59, 100, 101, 4]
    interface = reflect(b"".join(word.to_bytes(4, "little") for word in words))
    assert interface.shared_bytes == 4 << 60
    with pytest.raises(DeviceError, match="bytes of shared memory"):
        check_shader(replace(load("add"), interface=interface), [], DEVICE)


def _text(name: str) -> list[int]:
    raw = name.encode() + bytes(4 - len(name) % 4)
    return [int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4)]


def test_arrays_as_long_as_the_workgroup_are_counted() -> None:
    """ring_attention joins in an array of gl_WorkGroupSize.x, which a specialisation constant sets."""
    interface = load("ring_attention").interface
    assert interface.shared({"LANES": 128}) - interface.shared({"LANES": 8}) == 2 * 4 * 120


def test_constants_that_overflow() -> None:
    made = load("linear")
    for spec in ([1 << 32] * len(made.interface.spec), [-1] * len(made.interface.spec), [1]):
        with pytest.raises(DeviceError, match="specialisation constants of 32 bits"):
            check_shader(made, spec, DEVICE)
    with pytest.raises(DeviceError, match="invocations a workgroup"):
        check_shader(made, [(1 << 32) - 1] * len(made.interface.spec), DEVICE)


def test_without_spirv_val_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s.spv").write_bytes(load("add").code)
    load_file("add", tmp_path / "s.spv")
    monkeypatch.setattr(glsl, "find_tool", lambda name: None)
    with pytest.warns(VkcatWarning, match="expected spirv-val, to check it before a driver sees it, got none"):
        load_file("add", tmp_path / "s.spv")


def test_spirv_that_spirv_val_refuses(tmp_path: Path) -> None:
    """What reflection does not look at: a function's body."""
    if glsl.find_tool("spirv-val") is None:
        absent("spirv-val")
    code = load("add").code
    (tmp_path / "s.spv").write_bytes(code[:-8] + code[-4:])
    with pytest.raises(ShaderError, match="spirv-val failed"):
        load_file("add", tmp_path / "s.spv")
