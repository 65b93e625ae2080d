"""Tilings that `vkcat tune` measured, by device, shader and sizes: a file in the user's cache folder.

The environment variable VKCAT_TILINGS is another file, or `off`.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from vkcat import strict_json
from vkcat.device.interface import DeviceInfo
from vkcat.errors import InputError, VkcatWarning, mismatch
from vkcat.files import replaced
from vkcat.graph import Node
from vkcat.tiling import Tiling, is_possible
from vkcat.usercache import cache_folder

VARIABLE = "VKCAT_TILINGS"

Table = dict[str, dict[str, Tiling]]
"""By device and by node; see `device_key` and `node_key`."""


def file() -> Path | None:
    """Where the table lies; None when it is switched off, or the user has no home folder."""
    chosen = os.environ.get(VARIABLE, "")
    if chosen:
        return None if chosen == "off" else Path(chosen)
    try:
        return cache_folder(sys.platform, os.environ, Path.home) / "tilings.json"
    except RuntimeError:
        return None


def device_key(info: DeviceInfo) -> str:
    return f"{info.name}, {info.driver}"


def node_key(node: Node) -> str:
    """The shader with its precision, and the sizes."""
    return " ".join([node.shader, *(f"{name}={size}" for name, size in sorted(node.sizes.items()))])


def measured(info: DeviceInfo, node: Node) -> Tiling | None:
    """What was found best for a node on a device, if it was ever measured."""
    path = file()
    return None if path is None else _kept(path).get(device_key(info), {}).get(node_key(node))


@lru_cache(maxsize=None)
def _kept(path: Path) -> Table:
    """The table as it was when first asked for. What cannot be used is said once, and left out."""
    try:
        return read(path)
    except InputError as error:
        warnings.warn(f"{error}; see vkcat tune", VkcatWarning, stacklevel=2)
        return {}


def read(path: Path) -> Table:
    """The table in a file, empty when there is none. Raises `InputError` for a file that holds anything else."""
    try:
        given = strict_json.read(path)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(mismatch(str(path), "a table of tilings", error.strerror)) from error
    except ValueError as error:
        raise InputError(mismatch(str(path), "a table of tilings", f"no JSON ({error})")) from error
    if not isinstance(given, dict):
        raise InputError(mismatch(str(path), "a table of tilings", type(given).__name__))
    return {device: _tilings(path, entries) for device, entries in given.items()}


def _tilings(path: Path, entries: Any) -> dict[str, Tiling]:
    if not isinstance(entries, Mapping):
        raise InputError(mismatch(str(path), "tilings by node", type(entries).__name__))
    found = {}
    for key, numbers in entries.items():
        whole = isinstance(numbers, list) and len(numbers) == 4 and all(type(number) is int for number in numbers)
        if not whole or not is_possible(Tiling(*numbers)):
            raise InputError(mismatch(f"{path}: {key}", "streams, rows, split and lanes", repr(numbers)))
        found[key] = Tiling(*numbers)
    return found


def keep(path: Path, device: str, found: Mapping[str, Tiling]) -> None:
    """Add tilings to the file, beside what others have added before. Raises `InputError`.

    Of two processes that do so at once, the file may have what one of them found alone.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(mismatch(str(path.parent), "a folder that can be made", error.strerror)) from error
    table = read(path)
    table[device] = {**table.get(device, {}), **found}
    numbers = {
        name: {key: [one.streams, one.rows, one.split, one.lanes] for key, one in sorted(entries.items())}
        for name, entries in sorted(table.items())
    }
    with replaced(path) as temporary:
        temporary.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
    _kept.cache_clear()
