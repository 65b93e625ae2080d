"""Read JSON objects strictly: every key is checked, an unknown one is an error, so a misspelt option is never ignored.

A dataclass whose fields are made by `size`, `choice`, `number` and `flag` is read by `read` and written by `write`; its
defaults stand in its fields and nowhere else.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, TypeVar

from vkcat.errors import ModelError, mismatch

FILE = "config.json"
MAX_WIDTH = 1 << 16

T = TypeVar("T")


class Fields:
    """A JSON object whose keys are taken one by one; what is left over is an error."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise ModelError(mismatch(path, "an object", short(value)))
        self._left = dict(value)
        self.path = path

    def where(self, key: str) -> str:
        return f"{self.path}.{key}" if not self.path.endswith(FILE) else f"{self.path}: {key}"

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def take(self, key: str, kind: type[T], *default: T | None) -> T:
        if key not in self._left:
            if default:
                return default[0]  # type: ignore[return-value]
            raise ModelError(mismatch(self.where(key), f"a value of type {kind.__name__}", "no such key"))
        value = self._left.pop(key)
        # In Python a bool is an int; in a configuration it is not.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ModelError(mismatch(self.where(key), kind.__name__, short(value)))
        return value

    def any(self, key: str) -> object:
        """The value of a key that may have several types; None when it is not there."""
        return self._left.pop(key, None)

    def size(self, key: str, *default: int, least: int = 1, most: int = MAX_WIDTH) -> int:
        value = self.take(key, int, *default)
        if not least <= value <= most:
            raise ModelError(mismatch(self.where(key), f"{least} to {most}", value))
        return value

    def number(self, key: str, *default: float, least: float, most: float) -> float:
        if key not in self._left and default:
            return default[0]
        value = self.any(key)
        # In Python a bool is an int; in a configuration it is not.
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
            raise ModelError(mismatch(self.where(key), f"a number from {least:g} to {most:g}", short(value)))
        return float(value)

    def choice(self, key: str, choices: Sequence[str], *default: str) -> str:
        value = self.take(key, str, *default)
        if value not in choices:
            raise ModelError(mismatch(self.where(key), " or ".join(map(repr, choices)), repr(value)))
        return value

    def done(self) -> None:
        if self._left:
            raise ModelError(
                mismatch(self.path, "no other keys", f"unknown {', '.join(map(repr, sorted(self._left)))}")
            )


def short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _field(method: str, default: object, *arguments: Any, **options: Any) -> Any:
    metadata = {"method": method, "arguments": arguments, "options": options}
    if default is None:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def size(default: int | None = None, *, least: int = 1, most: int = MAX_WIDTH) -> Any:
    """A field that holds an integer from `least` to `most`."""
    return _field("size", default, least=least, most=most)


def choice(*choices: str, default: str | None = None) -> Any:
    """A field that holds one of some names."""
    return _field("choice", default, choices)


def number(default: float | None = None, *, least: float, most: float) -> Any:
    """A field that holds a number from `least` to `most`."""
    return _field("number", default, least=least, most=most)


def flag(default: bool) -> Any:
    """A field that holds true or false."""
    return _field("take", default, bool)


def read(cls: type[T], fields: Fields) -> T:
    """An instance of a dataclass made of these fields. Raises `ModelError` naming the key."""
    values = {}
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        default = () if field.default is dataclasses.MISSING else (field.default,)
        method = getattr(fields, field.metadata["method"])
        values[field.name] = method(field.name, *field.metadata["arguments"], *default, **field.metadata["options"])
    fields.done()
    return cls(**values)


def read_kind(kinds: Sequence[type[T]], value: object, path: str) -> T:
    """An instance of that dataclass of `kinds` which the object's `kind` names.

    A class may have `check(where)`, which raises `ModelError` when its fields do not go together.
    """
    by_name = {kind.kind: kind for kind in kinds}  # type: ignore[attr-defined]
    fields = Fields(value, path)
    made = read(by_name[fields.choice("kind", list(by_name))], fields)
    if hasattr(made, "check"):
        made.check(path)
    return made


def write(value: Any) -> dict[str, Any]:
    """The JSON object that `read_kind` reads back as `value`."""
    return {"kind": value.kind, **dataclasses.asdict(value)}
