"""Result files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vkcat.files import replaced


def write_text(path: Path, text: str) -> None:
    with replaced(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, indent=1) + "\n")
