"""Files that appear whole or not at all: written under a temporary name, then renamed."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vkcat.errors import InputError, mismatch

_counter = itertools.count()


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
        os.replace(temporary, target)
    except BrokenPipeError:
        # Of standard output, inside the block.
        raise
    except OSError as error:
        raise _refused(path, error.strerror) from error
    finally:
        temporary.unlink(missing_ok=True)


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
