"""Result files: written under a temporary name, then renamed, so that none is ever half there."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from vkcat.errors import InputError, mismatch


def write_text(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, encoding="utf-8")
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(mismatch(str(path), "a file that can be written", error.strerror)) from error


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")
