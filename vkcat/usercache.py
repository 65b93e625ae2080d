"""The user's cache folder: what vkcat keeps from one process to the next lies there, and may be deleted at any time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path


def cache_folder(platform: str, environment: Mapping[str, str], home: Callable[[], Path]) -> Path:
    """vkcat's folder in it, by `sys.platform`. Raises `RuntimeError` when the user has no home folder to look below."""
    if platform == "win32":
        return Path(environment.get("LOCALAPPDATA") or home() / "AppData" / "Local") / "vkcat" / "Cache"
    if platform == "darwin":
        return home() / "Library" / "Caches" / "vkcat"
    # The XDG base directory specification has a relative path ignored.
    given = Path(environment.get("XDG_CACHE_HOME", ""))
    return (given if given.is_absolute() else home() / ".cache") / "vkcat"
