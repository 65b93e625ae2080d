"""JSON as others wrote it, read to the letter: no key twice, no number that is none, nothing nested without end."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

from vkcat.files import contents

MOST_BYTES = 64 << 20
MOST_DEPTH = 64


def read(path: Path) -> Any:
    """What a file in UTF-8 holds. Raises `OSError`, or `ValueError` for anything but JSON."""
    return decoded(contents(path, MOST_BYTES))


def decoded(data: bytes) -> Any:
    """Raises `ValueError`."""
    text = data.decode("utf-8")
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_float=_number, parse_constant=_no_number)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    _check_depth(value)
    if _SURROGATE.search(text):
        _check_characters(value)
    return value


_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_TOO_DEEP = f"values nested more than {MOST_DEPTH} deep"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError(f"the key {json.dumps(key[:60])} twice")
            seen.add(key)
    return made


def _number(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:60]}, which float64 cannot hold")
    return value


def _no_number(name: str) -> float:
    raise ValueError(f"{name}, which JSON has not")


def _check_characters(value: Any) -> None:
    """Half of a pair, which JSON may name, is no character: nothing could print it."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("half of a character") from error


def _check_depth(value: Any) -> None:
    """Not by recursion; what is nested less deep can be written again, as errors do."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(MOST_DEPTH):
        held = [each for one in level for each in (one.values() if isinstance(one, dict) else one)]
        level = [each for each in held if isinstance(each, (dict, list))]
    if level:
        raise ValueError(_TOO_DEEP)
