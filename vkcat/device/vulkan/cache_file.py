"""Files of what a driver keeps of its pipelines: where they lie, and whether their bytes may be given to it.

A driver need not look at what it is handed, and some crash on bytes that are damaged or another's. So a file has a head
of vkcat's own with a checksum, and both it and the head that Vulkan prescribes (VkPipelineCacheHeaderVersionOne) must
name this very driver. The idea and most of the fields are from A. Kapoulkine, Creating a robust pipeline cache with
Vulkan, 2019.
"""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from vkcat.errors import InputError, mismatch
from vkcat.files import ABANDONED_S, contents, replaced
from vkcat.usercache import cache_folder

VARIABLE = "VKCAT_PIPELINE_CACHE"
"""Environment variable: another folder for the files, or `off`."""

MOST_BYTES = 64 << 20
"""Of all files together: the ones that were written longest ago go first."""

_MAGIC = b"vkcatPC1"
_HEAD = struct.Struct("<8sIIII16s32sQ")
_VULKAN_HEAD = struct.Struct("<IIII16s")


class Driver(Struct, frozen=True):
    """What tells one driver's data from another's: of VkPhysicalDeviceProperties, and the width of a pointer."""

    vendor: int
    device: int
    version: int
    uuid: bytes

    @property
    def fields(self) -> tuple[int, int, int, int, bytes]:
        return self.vendor, self.device, self.version, struct.calcsize("P"), self.uuid

    def file(self, shaders: str) -> str:
        """The name of its file for a set of shaders, by their digest."""
        numbers = "-".join(f"{number:x}" for number in self.fields[:4])
        return f"{numbers}-{self.uuid.hex()}-{shaders[:16]}.bin"


def user_folder(platform: str, environment: Mapping[str, str], home: Callable[[], Path]) -> Path | None:
    """Where the files lie, by `sys.platform`: the user's cache folder, or what VARIABLE says. None: nowhere.

    Raises `InputError` when that is below the home folder and the user has none.
    """
    chosen = environment.get(VARIABLE, "")
    if chosen:
        return None if chosen == "off" else Path(chosen)
    try:
        return cache_folder(platform, environment, home)
    except RuntimeError as error:
        expected = "a home folder for it"
        raise InputError(mismatch("pipeline cache", expected, "none", f"set {VARIABLE} to a folder, or off")) from error


def read(path: Path, driver: Driver) -> bytes:
    """The driver's data, or none when there is no file.

    Raises `InputError` when it is damaged, cut short, another's, or cannot be read.
    """
    try:
        content = contents(path, MOST_BYTES + _HEAD.size)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise InputError(mismatch(str(path), "a pipeline cache that can be read", error.strerror)) from error
    fault = _fault(content, driver)
    if fault is not None:
        expected = f"a whole pipeline cache of driver version {driver.version:#x}"
        remedy = "it is left out, and another will replace it"
        raise InputError(mismatch(str(path), expected, fault, remedy))
    return content[_HEAD.size :]


def _fault(content: bytes, driver: Driver) -> str | None:
    if len(content) < _HEAD.size:
        return f"{len(content)} bytes"
    magic, *fields, checksum, size = _HEAD.unpack_from(content)
    data = content[_HEAD.size :]
    if magic != _MAGIC:
        return "another kind of file"
    if tuple(fields) != driver.fields:
        return "another driver's"
    if size != len(data) or checksum != hashlib.sha256(data).digest():
        return "a damaged one"
    return None if fits(data, driver) else "one with another driver's data"


def fits(data: bytes, driver: Driver) -> bool:
    """Whether the data begins with Vulkan's head and that names the driver."""
    if len(data) < _VULKAN_HEAD.size:
        return False
    size, version, vendor, device, uuid = _VULKAN_HEAD.unpack_from(data)
    known = _VULKAN_HEAD.size <= size <= len(data) and version == 1
    return known and (vendor, device, uuid) == (driver.vendor, driver.device, driver.uuid)


def is_empty(data: bytes) -> bool:
    """Whether it is Vulkan's head alone."""
    return len(data) <= _VULKAN_HEAD.size


def write(path: Path, driver: Driver, data: bytes, most: int = MOST_BYTES) -> None:
    """Put the data in place of what is there, and keep the folder within `most` bytes. Raises `InputError`."""
    head = _HEAD.pack(_MAGIC, *driver.fields, hashlib.sha256(data).digest(), len(data))
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with replaced(path) as temporary:
            temporary.write_bytes(head + data)
        _bound(path.parent, path, most)
    except OSError as error:
        raise InputError(mismatch(str(path.parent), "a folder for pipeline caches", error.strerror)) from error


def _bound(folder: Path, newest: Path, most: int) -> None:
    """Remove the oldest files beyond so many bytes, and what a process left that ended while it wrote."""
    total = 0
    found = []
    for entry in os.scandir(folder):
        # Another process may rename or remove it meanwhile.
        with suppress(FileNotFoundError):
            if ".bin" in entry.name and entry.is_file(follow_symlinks=False):
                found.append((entry.stat(), entry))
    for known, entry in sorted(found, key=lambda pair: pair[0].st_mtime, reverse=True):
        temporary = not entry.name.endswith(".bin")
        if temporary and time.time() - known.st_mtime < ABANDONED_S:
            continue
        total += known.st_size
        if temporary or (total > most and entry.name != newest.name):
            Path(entry.path).unlink(missing_ok=True)
