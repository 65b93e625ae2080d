"""Which Vulkan layers are active in this process: they change both timings and what is caught."""

from __future__ import annotations

import os
import re
from pathlib import Path

_LIBRARY = re.compile(r"libVkLayer_(\w+)\.so")


def requested_layers() -> list[str]:
    """Layers asked for through the loader's environment."""
    value = os.environ.get("VK_INSTANCE_LAYERS", "")
    return [name for name in value.split(os.pathsep) if name]


def mapped_layers() -> list[str]:
    """Layer libraries mapped into this process; empty where the system cannot tell (other than Linux)."""
    maps = Path("/proc/self/maps")
    if not maps.is_file():
        return []
    libraries = {line.rsplit("/", 1)[-1].strip() for line in maps.read_text().splitlines() if "/" in line}
    return sorted({match[1] for name in libraries if (match := _LIBRARY.match(name))})


def active_layers() -> list[str]:
    """Names for a report: what is mapped, and what was asked for but is not ("... (inactive)")."""
    mapped = mapped_layers()
    if not Path("/proc/self/maps").is_file():
        return [f"{name} (requested)" for name in requested_layers()]
    missing = [
        name
        for name in requested_layers()
        if not any(name.lower().removeprefix("vk_layer_") in library.lower() for library in mapped)
    ]
    return mapped + [f"{name} (requested, INACTIVE)" for name in missing]
