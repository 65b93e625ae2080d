"""What vkcat runs in: system, packages, Vulkan's loader, the environment, and what is kept on disk."""

from __future__ import annotations

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from msgspec import Struct

from vkcat import glsl, tilings
from vkcat.device.vulkan import cache_file, loader_version
from vkcat.doctor.private import without_names
from vkcat.errors import VkcatError

PACKAGES = ("vkcat", "numpy", "vulkan", "kp", "safetensors", "click", "rich", "pillow", "onnx", "torch")
TOOLS = ("glslangValidator", "glslc", "spirv-val")
PREFIXES = ("VK_", "VKCAT_", "MESA_", "LP_", "DISABLE_LAYER", "ENABLE_LAYER")
"""Of environment variables that change what Vulkan or vkcat does."""


class Surroundings(Struct, frozen=True):
    """Each part is rows of a name and what is to be said of it, without names of users or home folders."""

    system: dict[str, str]
    packages: dict[str, str]
    tools: dict[str, str]
    environment: dict[str, str]
    kept: dict[str, str]


def surroundings() -> Surroundings:
    return Surroundings(
        system={
            "system": without_names(f"{platform.system()} {platform.release()} {platform.machine()}"),
            "Python": f"{platform.python_implementation()} {platform.python_version()}",
            "cores": str(os.cpu_count()),
            "Vulkan loader": without_names(loader_version()),
        },
        packages={name: _installed(name) for name in PACKAGES},
        tools={name: without_names(glsl.find_tool(name) or "not found") for name in TOOLS},
        environment={
            name: without_names(value) for name, value in sorted(os.environ.items()) if name.startswith(PREFIXES)
        },
        kept={"pipeline cache": _pipelines(), "tilings": _tilings()},
    )


def _installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def _pipelines() -> str:
    try:
        folder = cache_file.user_folder(sys.platform, os.environ, Path.home)
    except VkcatError as error:
        return without_names(str(error))
    if folder is None:
        return "off"
    files = list(folder.glob("*.bin")) if folder.is_dir() else []
    return without_names(f"{folder}: {len(files)} files, {sum(file.stat().st_size for file in files) >> 10} KiB")


def _tilings() -> str:
    path = tilings.file()
    if path is None:
        return "off"
    try:
        entries = {device: len(found) for device, found in tilings.read(path).items()}
    except VkcatError as error:
        return without_names(str(error))
    told = ", ".join(f"{count} of {device}" for device, count in entries.items())
    return without_names(f"{path}: {told or 'none measured'}")
