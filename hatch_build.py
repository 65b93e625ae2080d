"""Build hook: compile the shaders, so that a wheel needs no GLSL compiler."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def _load_glsl(root: Path) -> ModuleType:
    """vkcat/glsl.py by its path: the package's dependencies are not there during a build."""
    spec = importlib.util.spec_from_file_location("vkcat_glsl", root / "vkcat" / "glsl.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class CustomBuildHook(BuildHookInterface[Any]):
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        del version, build_data
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        glsl = _load_glsl(root)
        try:
            glsl.compile_all(root / "shaders", root / "vkcat" / "spirv")
        except glsl.CompileError as error:
            raise SystemExit(f"vkcat: {error}") from error
