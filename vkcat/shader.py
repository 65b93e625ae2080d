"""Shaders by name: the SPIR-V that ships with the package, or a user's own GLSL or SPIR-V file."""

from __future__ import annotations

import hashlib
import json
import warnings
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from vkcat import glsl
from vkcat.errors import ShaderError, VkcatWarning, mismatch
from vkcat.files import contents
from vkcat.spirv import Interface, reflect

_PACKAGE = Path(__file__).parent
_COMPILED = _PACKAGE / "spirv"
# In a checkout the sources lie beside the package; a wheel carries them inside it.
_CHECKOUT = _PACKAGE.parent / "shaders"
SOURCES = _CHECKOUT if _CHECKOUT.is_dir() and (_PACKAGE.parent / "pyproject.toml").is_file() else _PACKAGE / "shaders"

MOST_BYTES = 16 << 20
"""Of a user's SPIR-V; vkcat's own have some thousands."""


class Shader(Struct, frozen=True):
    """A compute shader ready for a device: its name, SPIR-V and reflected interface."""

    name: str
    code: bytes
    interface: Interface


def compiled_digest() -> str:
    """A digest of the compiled shaders, in hexadecimal; of none where they are not compiled yet."""
    index = _COMPILED / "index.json"
    return hashlib.sha256(index.read_bytes() if index.is_file() else b"").hexdigest()


@lru_cache(maxsize=1)
def _recorded() -> dict[str, str]:
    """The hash of the source that each compiled shader was made from."""
    index = _COMPILED / "index.json"
    hashes: dict[str, str] = json.loads(index.read_text(encoding="utf-8")) if index.is_file() else {}
    return hashes


def _stale(name: str, source: Path) -> bool:
    """Whether there is no compiled form, or a checkout's source is newer; a wheel's are never changed."""
    if name not in _recorded() or not (_COMPILED / f"{name}.spv").is_file():
        return True
    in_checkout = SOURCES is _CHECKOUT and source.is_file()
    return in_checkout and _recorded()[name] != glsl.source_hash(source, SOURCES / "include")


@lru_cache(maxsize=None)
def load(name: str) -> Shader:
    """The shader `shaders/<name>.comp`, compiled at build time; in a checkout recompiled when its source changed.

    A name may have a variant's suffix, as `linear.float16`.
    """
    stem, variant = parted(name)
    source = SOURCES / f"{stem}.comp"
    if not _stale(name, source):
        code = (_COMPILED / f"{name}.spv").read_bytes()
    elif source.is_file():
        code = _compile(source, variant)
    else:
        raise ShaderError(
            f"{name}: expected a shader of this name in {SOURCES.name}/, got none; see `vkcat validate -h`"
        )
    return Shader(name, code, reflect(code, name))


def parted(name: str) -> tuple[str, str]:
    """`linear.float16` as the shader's name and the variant's suffix."""
    stem, dot, rest = name.partition(".")
    return stem, dot + rest


@lru_cache(maxsize=None)
def exists(name: str) -> bool:
    """Whether there is a shader, or a variant of one, of this name."""
    stem, variant = parted(name)
    source = SOURCES / f"{stem}.comp"
    if SOURCES is not _CHECKOUT:
        return name in _recorded()
    return source.is_file() and variant in glsl.variants(source, SOURCES / "include")


def load_file(name: str, path: Path) -> Shader:
    """A user's shader in place of the one named: `.spv` is checked and taken, anything else is compiled as GLSL.

    Raises `ShaderError`.
    """
    if not path.is_file():
        raise ShaderError(f"{name}: expected a shader file, got {path}, which does not exist")
    code = _checked(path) if path.suffix == ".spv" else _compile(path, parted(name)[1])
    return Shader(name, code, reflect(code, str(path)))


def replacements(name: str, path: Path) -> dict[str, Shader]:
    """By name, a user's shader and, when it is GLSL that has them, its variants. Raises `ShaderError`."""
    made = {name: load_file(name, path)}
    if path.suffix != ".spv":
        suffixes = [suffix for suffix in glsl.variants(path, SOURCES / "include") if suffix]
        made |= {f"{name}{suffix}": load_file(f"{name}{suffix}", path) for suffix in suffixes}
    return made


def _compile(path: Path, variant: str) -> bytes:
    try:
        return glsl.compile_file(path, SOURCES / "include", variant)
    except (glsl.CompileError, OSError) as error:
        raise ShaderError(str(error)) from error


def _checked(path: Path) -> bytes:
    """SPIR-V that spirv-val has seen: drivers need not look at what they are given, and some crash."""
    try:
        code = contents(path, MOST_BYTES)
        seen = glsl.check_code(code, path.name)
    except (glsl.CompileError, OSError) as error:
        raise ShaderError(str(error)) from error
    if not seen:
        expected = "spirv-val, to check it before a driver sees it"
        warnings.warn(VkcatWarning(mismatch(str(path), expected, "none", "pip install 'vkcat[glsl]'")), stacklevel=3)
    return code
