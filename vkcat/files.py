"""Files that appear whole or not at all, written under a temporary name, then renamed; and others' files, read
without waiting for a pipe, and no further than the end they had.
"""

from __future__ import annotations

import errno
import itertools
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from vkcat.errors import InputError, mismatch

_counter = itertools.count()

ABANDONED_S = 3600
"""Seconds after which a temporary file's writer is taken to be gone."""


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, which takes its name when the block ends well.

    A link stays one: what it points to is replaced. What is no regular file, as a pipe or a device, is given itself.
    Raises `InputError`.
    """
    if path.exists() and not path.is_file():
        check_writable(path)
        yield path
        return
    target = path.resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{next(_counter)}")
    try:
        yield temporary
        _settle(temporary)
        os.replace(temporary, target)
        _remove_abandoned(target)
    except BrokenPipeError:
        # Of standard output, inside the block.
        raise
    except OSError as error:
        raise _refused(path, error.strerror) from error
    finally:
        temporary.unlink(missing_ok=True)


def _settle(path: Path) -> None:
    """Have the file on the disk before it gets its name: after a loss of power it is the old one or the new one."""
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _remove_abandoned(target: Path) -> None:
    """Remove what processes left that were killed while they wrote this file."""
    temporary = re.compile(re.escape(f".{target.name}.") + r"\d+\.\d+")
    for entry in os.scandir(target.parent):
        # Another process may be here too.
        with suppress(FileNotFoundError):
            if temporary.fullmatch(entry.name) and time.time() - entry.stat().st_mtime > ABANDONED_S:
                Path(entry.path).unlink()


def check_writable(path: Path) -> None:
    """Raises `InputError` when there can be no file at `path`: before the work whose result it is to hold."""
    if path.is_dir():
        raise _refused(path, "a folder")
    if not path.resolve().parent.is_dir():
        raise _refused(path, "no such folder")
    if not os.access(path if path.exists() else path.resolve().parent, os.W_OK):
        raise _refused(path, "no permission")


def _refused(path: Path, reason: object) -> InputError:
    return InputError(mismatch(str(path), "a file that can be written", reason))


def open_regular(path: Path) -> BinaryIO:
    """A regular file, opened to be read. Raises `OSError`, for a pipe or a device too, which might never end."""
    # Without O_NONBLOCK, opening a pipe waits for a writer; Windows has neither.
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "no regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def contents(path: Path, most: int) -> bytes:
    """Of a regular file of at most so many bytes. Raises `OSError`."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise OSError(errno.EFBIG, f"more than {most} bytes", str(path))
        return file.read(size)


def inside(folder: Path, name: str) -> Path:
    """A file of a folder. Raises `OSError` when a link leads out of it: who made the folder does not choose what else
    of this machine is read."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise OSError(errno.EPERM, f"a link out of the folder; copy {name} into it", str(path))
    return path
