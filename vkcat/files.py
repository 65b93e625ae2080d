"""Files that appear whole or not at all: written under a temporary name, then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vkcat.errors import InputError, mismatch


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, which takes its name when the block ends well. Raises `InputError`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield temporary
        os.replace(temporary, path)
    except OSError as error:
        raise InputError(mismatch(str(path), "a file that can be written", error.strerror)) from error
    finally:
        temporary.unlink(missing_ok=True)
