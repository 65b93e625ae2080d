"""Compile GLSL compute shaders to SPIR-V with whichever compiler is at hand.

Standard library only: the build hook loads this file before the package is installed. `glslangValidator`, `spirv-opt`
and `spirv-val` come from the extra `glsl` or from the system; `glslc` does as well. What only compiling needs is
imported there: a program that finds its shaders compiled starts without it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from contextlib import suppress
from itertools import product
from pathlib import Path

TARGET = "vulkan1.1"
PACKED = (".float16", ".float16-rounded")
SUBGROUP = ".subgroup"
VARIANTS = {"weights.glsl": PACKED, "reduction.glsl": (SUBGROUP,)}
"""Suffixes of what else a shader is compiled to, by an include of its own or of its includes."""

_DEFINES = {"float16": ("FLOAT16",), "float16-rounded": ("FLOAT16", "ROUNDED"), "subgroup": ("SUBGROUP",)}

MOST_SOURCE_BYTES = 1 << 20
MOST_SECONDS = 60
MOST_MEMORY = 4 << 30
MOST_LINE = 300

# Wherever a preprocessor may see one: comments may stand between its words. What is one in a comment counts as well.
_INCLUDE = re.compile(r"#(?:[^\S\n]|/\*.*?\*/)*include\b([^\n]*)", re.DOTALL)
_NAME = re.compile(r'\s*"([\w.-]+)"\s*(?:/[/*].*)?')


class CompileError(Exception):
    """The compiler refused a shader, or there is no compiler."""


def find_tool(name: str) -> str | None:
    """Path of `name` from PATH, the cmeel packages inside any `sys.path` entry, or this environment's scripts."""
    import shutil
    import sysconfig

    found = shutil.which(name)
    if found:
        return found
    # Of cmeel's the program itself first: what it puts among the scripts starts a Python to run that.
    folders = [os.path.join(entry, "cmeel.prefix", "bin") for entry in sys.path]
    folders.append(sysconfig.get_path("scripts"))
    return shutil.which(name, path=os.pathsep.join(folders))


def _tool_environment(tool: str) -> dict[str, str]:
    """Environment in which the cmeel tools find the shared libraries that they do not say they need."""
    environment = dict(os.environ)
    libraries = [os.path.join(entry, "cmeel.prefix", "lib") for entry in sys.path]
    libraries.append(os.path.join(os.path.dirname(os.path.dirname(tool)), "lib"))
    present = [folder for folder in libraries if os.path.isdir(folder)]
    if "cmeel" in tool or any("cmeel.prefix" in folder for folder in present):
        present.append(environment.get("LD_LIBRARY_PATH", ""))
        environment["LD_LIBRARY_PATH"] = os.pathsep.join(folder for folder in present if folder)
    return environment


def run_tool(command: list[str], subject: str) -> None:
    """Raises `CompileError`, also when it takes more time or memory than a shader of any use."""
    import subprocess

    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=_tool_environment(command[0]),
    ) as process:
        _limit_memory(process.pid)
        try:
            output, complaint = process.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise CompileError(f"{subject}: {Path(command[0]).name} took more than {MOST_SECONDS} s") from error
    if process.returncode != 0:
        lines = [line.strip()[:MOST_LINE] for line in (output + complaint).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()] or lines
        raise CompileError(f"{subject}: {Path(command[0]).name} failed: {'; '.join(errors[:3])}")


def _limit_memory(process: int) -> None:
    """A macro of a few lines may stand for more text than there is memory; only Linux can limit another process."""
    try:
        from resource import RLIMIT_AS, prlimit
    except ImportError:
        return
    with suppress(OSError):
        prlimit(process, RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def _compiler_command(source: Path, include: Path, output: Path, defines: tuple[str, ...]) -> list[str]:
    # A whole path, as a name may begin as an option does.
    common = [*(f"-D{name}" for name in defines), f"-I{include}", "-o", str(output), os.path.abspath(source)]
    glslang = find_tool("glslangValidator")
    if glslang:
        return [glslang, "--quiet", "-V", "--target-env", TARGET, "-S", "comp", *common]
    glslc = find_tool("glslc")
    if glslc:
        return [glslc, f"--target-env={TARGET}", "-fshader-stage=comp", *common]
    raise CompileError("no GLSL compiler: expected glslangValidator or glslc on PATH; pip install 'vkcat[glsl]'")


def compile_file(source: Path, include: Path, variant: str = "") -> bytes:
    """SPIR-V of one shader, or one variant of it, for Vulkan 1.1, optimised by `spirv-opt` and checked by `spirv-val`
    when these are at hand.

    `include` is the folder that `#include "name.glsl"` is looked up in, after the shader's own. Raises `CompileError`.
    """
    import tempfile

    included(source, include)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "shader.spv"
        defines = tuple(name for part in variant.split(".") for name in _DEFINES.get(part, ()))
        run_tool(_compiler_command(source, include, output, defines), source.name)
        _optimise(output, source.name)
        check_file(output, source.name)
        return output.read_bytes()


_KEPT = ("--preserve-bindings", "--preserve-spec-constants")


def _optimise(compiled: Path, subject: str) -> None:
    """Run `spirv-opt` on a compiled shader where it is at hand: a driver is done sooner with what it leaves.

    Bindings and constants stay also where they are not used, so that it is told what the shader does.
    """
    optimiser = find_tool("spirv-opt")
    if optimiser:
        path = os.path.abspath(compiled)
        run_tool([optimiser, "-O", *_KEPT, f"--target-env={TARGET}", path, "-o", path], subject)


def check_file(compiled: Path, subject: str) -> bool:
    """Run `spirv-val` on a compiled shader; false where it is not at hand. Raises `CompileError`."""
    validator = find_tool("spirv-val")
    if validator:
        run_tool([validator, "--target-env", TARGET, os.path.abspath(compiled)], subject)
    return validator is not None


def check_code(code: bytes, subject: str) -> bool:
    """`check_file` of bytes."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "shader.spv"
        file.write_bytes(code)
        return check_file(file, subject)


def variants(source: Path, include: Path) -> tuple[str, ...]:
    """Suffixes of all that a shader is compiled to, the empty one first: any one of each include's, in their order."""
    names = {path.name for path in included(source, include)}
    choices = [("", *suffixes) for name, suffixes in VARIANTS.items() if name in names]
    return tuple("".join(parts) for parts in product(*choices))


def included(source: Path, include: Path) -> list[Path]:
    """A shader and its includes, theirs too, each once; those that are not there are the compiler's to tell of.

    Raises `CompileError` for one that is not a file of the shader's own folder or of `include`, before a compiler reads
    it: who wrote the shader does not choose what else of this machine is read.
    """
    pending = [source]
    found: list[Path] = []
    while pending:
        path = pending.pop()
        if path not in found:
            found.append(path)
            pending += [each for name in _names(path) if (each := _found(path, source, include, name)) is not None]
    return found


def _names(path: Path) -> list[str]:
    """What a file includes, by name alone."""
    if not path.is_file() or path.stat().st_size > MOST_SOURCE_BYTES:
        raise CompileError(f"{path}: expected a file of at most {MOST_SOURCE_BYTES} bytes, got another kind or size")
    # A line that ends in a backslash goes on in the next.
    text = re.sub(r"\\\r?\n", "", path.read_text(encoding="utf-8", errors="replace")).replace("\r", "\n")
    names = []
    for rest in _INCLUDE.findall(text):
        match = _NAME.fullmatch(rest)
        if match is None:
            raise CompileError(f'{path}: expected #include "NAME", without a folder, got {rest.strip()[:MOST_LINE]!r}')
        names.append(match[1])
    return names


def _found(path: Path, source: Path, include: Path, name: str) -> Path | None:
    """As the compiler looks for it: beside the file that includes it, beside the shader, in `include`."""
    for folder in (path.parent, source.parent, include):
        at = folder / name
        if at.is_symlink() and not at.resolve().is_relative_to(folder.resolve()):
            raise CompileError(f"{path}: expected #include of a file of {folder}, got {name}, a link out of it")
        if at.exists():
            return at
    return None


def source_hash(source: Path, include: Path) -> str:
    """SHA-256 of a shader's text with that of its includes, in hexadecimal."""
    digest = hashlib.sha256()
    for path in included(source, include):
        digest.update(path.read_bytes())
    return digest.hexdigest()


def compile_all(source_dir: Path, out_dir: Path) -> list[Path]:
    """Compile every `*.comp` of `source_dir` into `out_dir`, with `index.json` naming each source's hash.

    What an earlier set of shaders left there goes.
    """
    from concurrent.futures import ThreadPoolExecutor

    include = source_dir / "include"
    out_dir.mkdir(parents=True, exist_ok=True)
    wanted = [
        (source, variant) for source in sorted(source_dir.glob("*.comp")) for variant in variants(source, include)
    ]

    def compile_one(source: Path, variant: str) -> Path:
        output = out_dir / f"{source.stem}{variant}.spv"
        temporary = output.with_suffix(".tmp")
        temporary.write_bytes(compile_file(source, include, variant))
        return temporary.replace(output)

    # The compiler is a process of its own each time, so threads use all processor cores.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outputs = list(pool.map(compile_one, *zip(*wanted, strict=True)))
    hashes = {f"{source.stem}{variant}": source_hash(source, include) for source, variant in wanted}
    for stale in set(out_dir.glob("*.spv")) - set(outputs):
        stale.unlink()
    index = out_dir / "index.json"
    temporary = index.with_suffix(".tmp")
    temporary.write_text(json.dumps(hashes, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    temporary.replace(index)
    return [*outputs, index]
