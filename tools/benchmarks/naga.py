"""vkcat's SPIR-V in the form that naga, wgpu's shader translator, accepts.

naga has no arrays whose length is a specialisation constant, so such constants are set and frozen by spirv-opt, which
is what a driver does with them. It has no OpUMulExtended either: a shader with GLSL's `umulExtended` is compiled again
with that written out in products of halves.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from vkcat import glsl
from vkcat.errors import ShaderError, mismatch
from vkcat.shader import SOURCES, Shader, parted

_OP_EXECUTION_MODE, _LOCAL_SIZE = 16, 17

_CALL = "umulExtended("
_IN_HALVES = """
void umul_in_halves(uint a, uint b, out uint high, out uint low) {
    uint first = (a & 0xFFFFu) * (b & 0xFFFFu);
    uint second = (a >> 16) * (b & 0xFFFFu) + (first >> 16);
    uint third = (a & 0xFFFFu) * (b >> 16) + (second & 0xFFFFu);
    high = (a >> 16) * (b >> 16) + (second >> 16) + (third >> 16);
    low = a * b;
}
"""


def frozen(code: bytes, shader: Shader, spec: tuple[int, ...]) -> bytes:
    """The module with its specialisation constants as plain ones. Raises `ShaderError`."""
    places = shader.interface.spec.values()
    if not places:
        return code
    values = " ".join(f"{at}:{value}" for (at, _), value in zip(places, spec, strict=True))
    tool = glsl.find_tool("spirv-opt")
    if tool is None:
        raise ShaderError(mismatch(shader.name, "spirv-opt, to freeze its constants", "none", "see the extra glsl"))
    with tempfile.TemporaryDirectory() as folder:
        given, made = Path(folder) / "given.spv", Path(folder) / "made.spv"
        given.write_bytes(code)
        command = [
            tool,
            f"--set-spec-const-default-value={values}",
            "--freeze-spec-const",
            "--fold-spec-const-op-composite",
            "--unify-const",
            str(given),
            "-o",
            str(made),
        ]
        try:
            glsl.run_tool(command, shader.name)
        except glsl.CompileError as error:
            raise ShaderError(str(error)) from error
        constants = dict(zip(shader.interface.spec, spec, strict=True))
        return _with_local_size(made.read_bytes(), shader.interface.sized(constants))


def _with_local_size(code: bytes, local_size: tuple[int, int, int]) -> bytes:
    """The module with this local size: naga takes it from where a constant's does not stand."""
    words = np.frombuffer(code, "<u4").copy()
    at = 5
    while at < len(words):
        count, opcode = int(words[at]) >> 16, int(words[at]) & 0xFFFF
        if opcode == _OP_EXECUTION_MODE and words[at + 2] == _LOCAL_SIZE:
            words[at + 3 : at + 6] = local_size
        at += count
    return words.tobytes()


def without_wide_products(shader: Shader) -> bytes | None:
    """The shader compiled again without `umulExtended`; None when its source has none. Raises `ShaderError`."""
    stem, variant = parted(shader.name)
    source = (SOURCES / f"{stem}.comp").read_text(encoding="utf-8")
    includes = {path.name: path.read_text(encoding="utf-8") for path in (SOURCES / "include").glob("*.glsl")}
    if not any(_CALL in text and name in source for name, text in includes.items()):
        return None
    with tempfile.TemporaryDirectory() as folder:
        for name, text in includes.items():
            if _CALL in text:
                text = _IN_HALVES + text.replace(_CALL, "umul_in_halves(")
            (Path(folder) / name).write_text(text, encoding="utf-8")
        copy = Path(folder) / f"{stem}.comp"
        copy.write_text(source, encoding="utf-8")
        try:
            return glsl.compile_file(copy, Path(folder), variant)
        except glsl.CompileError as error:
            raise ShaderError(str(error)) from error
