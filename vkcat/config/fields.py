"""Read JSON objects strictly: every key is checked, an unknown one is an error, so a misspelt option is never ignored.

A `Part`, whose fields are made by `size`, `choice`, `number`, `flag` and `text`, is read by `read` and written by
`write`; its defaults stand in its fields and nowhere else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import EllipsisType
from typing import Any, TypeVar

from msgspec import Struct
from msgspec.structs import asdict, force_setattr

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

    def take(self, key: str, kind: type[T]) -> T:
        if key not in self._left:
            raise ModelError(mismatch(self.where(key), f"a value of type {kind.__name__}", "no such key"))
        value = self._left.pop(key)
        # In Python a bool is an int; in a configuration it is not.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ModelError(mismatch(self.where(key), kind.__name__, short(value)))
        return value

    def any(self, key: str) -> object:
        """The value of a key that may have several types; None when it is not there."""
        return self._left.pop(key, None)

    def size(self, key: str, least: int = 1, most: int = MAX_WIDTH) -> int:
        value = self.take(key, int)
        if not least <= value <= most:
            raise ModelError(mismatch(self.where(key), f"{least} to {most}", value))
        return value

    def number(self, key: str, least: float, most: float) -> float:
        value = self.any(key)
        # In Python a bool is an int; in a configuration it is not.
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not least <= value <= most:
            raise ModelError(mismatch(self.where(key), f"a number from {least:g} to {most:g}", short(value)))
        return float(value)

    def choice(self, key: str, choices: Sequence[str]) -> str:
        value = self.take(key, str)
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


class Rule(Struct, frozen=True):
    """What a field of a `Part` may hold: the method of `Fields` that takes it, with its arguments.

    `default` is `...` where it must be given.
    """

    method: str
    default: object
    arguments: Mapping[str, Any]


class Part(Struct, frozen=True):
    """An object of a configuration. Its class has rules where other structs have defaults."""

    def __post_init__(self) -> None:
        """Put a rule's default where nothing was given: what msgspec put there is the rule itself."""
        for name, rule in rules(type(self)).items():
            if getattr(self, name) is rule:
                if rule.default is ...:
                    raise TypeError(f"{type(self).__name__} is missing the required argument {name!r}")
                force_setattr(self, name, rule.default)


def rules(cls: type[Part]) -> dict[str, Rule]:
    """By the names of the fields that have one. msgspec's `fields` would evaluate every annotation for it."""
    defaults = cls.__struct_defaults__
    last = cls.__struct_fields__[len(cls.__struct_fields__) - len(defaults) :]
    return {name: rule for name, rule in zip(last, defaults, strict=True) if isinstance(rule, Rule)}


def size(default: int | EllipsisType | None = ..., *, least: int = 1, most: int = MAX_WIDTH) -> Any:
    """A field that holds an integer from `least` to `most`."""
    return Rule("size", default, {"least": least, "most": most})


def choice(*choices: str, default: str | EllipsisType = ...) -> Any:
    """A field that holds one of some names."""
    return Rule("choice", default, {"choices": choices})


def number(default: float | EllipsisType = ..., *, least: float, most: float) -> Any:
    """A field that holds a number from `least` to `most`."""
    return Rule("number", default, {"least": least, "most": most})


def flag(default: bool) -> Any:
    """A field that holds true or false."""
    return Rule("take", default, {"kind": bool})


def text() -> Any:
    """A field that holds a string, or None."""
    return Rule("take", None, {"kind": str})


P = TypeVar("P", bound=Part)


def read(cls: type[P], fields: Fields, **given: object) -> P:
    """An instance made of these fields, and what is given for others. Raises `ModelError` naming the key."""
    for name, rule in rules(cls).items():
        if rule.default is ... or name in fields:
            given[name] = getattr(fields, rule.method)(name, **rule.arguments)
    fields.done()
    return cls(**given)


def read_kind(kinds: Sequence[type[P]], value: object, path: str) -> P:
    """An instance of that class of `kinds` which the object's `kind` names.

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
    return {"kind": value.kind, **asdict(value)}
