"""Damage to any file: bytes, and JSON as a tree. The same numbers from `rng` make the same damage."""

from __future__ import annotations

import json
from copy import deepcopy
from random import Random
from typing import Any

INTEGERS = (0, 1, 2, 3, 4, 5, 7, 8, 16, 63, 64, 255, 256, 4096, 65535, 65536, 1 << 20, (1 << 31) - 1, 1 << 31,
            (1 << 32) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64)  # fmt: skip
TEXTS = ("", "../x", "/etc/passwd", "a\0b", "__proto__", "\ud800", "\u202e", "x" * 300, "kind", "F32", "BF16", "bytes")


class Raw(str):
    """Written into JSON as it is."""


class Pairs(list[tuple[Any, Any]]):
    """An object that may have a key twice."""


RAW = tuple(Raw(text) for text in (
    "NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1e-400", "-0", "0.5", "9" * 400, "9" * 5000, "01", "nul",
    "[" * 70 + "]" * 70, "[" * 3000 + "]" * 3000, "[" * 3000, '{"a":' * 70 + "1" + "}" * 70, "'x'", "\ufeff1", "",
))  # fmt: skip


def of_bytes(data: bytes, rng: Random) -> bytes:
    """A few bytes changed, taken out, put in or repeated."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(made) + 1)
        end = min(len(made), at + rng.choice((1, 1, 2, 4, 8, 64)))
        match rng.randrange(7):
            case 0:
                made[at:end] = rng.randbytes(end - at)
            case 1:
                del made[at:end]
            case 2:
                made[at:at] = rng.randbytes(rng.choice((1, 2, 4, 16)))
            case 3:
                made[at:at] = made[rng.randrange(len(made) + 1) :][: rng.choice((1, 4, 16, 256))]
            case 4:
                size = rng.choice((1, 2, 4, 8))
                value = rng.choice(INTEGERS) % (1 << 8 * size)
                made[at : at + size] = value.to_bytes(size, rng.choice(("little", "big")))
            case 5:
                del made[at:]
            case 6 if end > at:
                made[at] ^= 1 << rng.randrange(8)
    return bytes(made)


def of_json(data: bytes, rng: Random) -> bytes:
    """Values, keys, types and nesting; now and then the bytes."""
    if rng.random() < 0.1:
        return of_bytes(data, rng)
    try:
        return encoded(of_tree(json.loads(data, object_pairs_hook=Pairs), rng))
    except (ValueError, RecursionError):
        return of_bytes(data, rng)


def of_tree(tree: Any, rng: Random) -> Any:
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        tree = _changed(tree, rng)
    return tree


def _places(tree: Any) -> list[tuple[Any, int]]:
    """Every list or object with an index in it."""
    pending, found = [tree], []
    while pending:
        one = pending.pop()
        if isinstance(one, list):
            found += [(one, at) for at in range(len(one))]
            pending += [value for _, value in one] if isinstance(one, Pairs) else one
    return found


def _changed(tree: Any, rng: Random) -> Any:
    places = _places(tree)
    if not places or rng.random() < 0.02:
        return value(tree, rng)
    holder, at = rng.choice(places)
    named = isinstance(holder, Pairs)
    key, old = holder[at] if named else (None, holder[at])
    match rng.randrange(8):
        case 0:
            del holder[at]
        case 1:
            holder.insert(at, deepcopy(holder[at]))
        case 2 if named:
            holder[at] = (rng.choice(TEXTS), old)
        case 3:
            other, there = rng.choice(places)
            if named == isinstance(other, Pairs):
                # A copy, as it may hold the place that it is put into.
                holder[at] = deepcopy(other[there])
        case 4 if isinstance(old, list) and old and not isinstance(old, Pairs):
            holder[at] = (key, old * rng.choice((2, 40))) if named else old * rng.choice((2, 40))
        case _:
            new = value(old, rng)
            holder[at] = (key, new) if named else new
    return tree


def value(old: Any, rng: Random) -> Any:
    """One in its place, often of its type."""
    if type(old) is int and rng.random() < 0.6:
        return rng.choice((old + 1, old - 1, 2 * old, -old, *rng.sample(INTEGERS, 4)))
    if isinstance(old, float) and rng.random() < 0.6:
        return rng.choice((-old, 1e-300, 1e300, 0.0, 5))
    drawn = (rng.choice(INTEGERS), rng.choice(TEXTS), rng.choice(RAW))
    return rng.choice((*drawn, None, True, [], Pairs(), [old], Pairs([("kind", old)]), str(old)[:50]))


def encoded(tree: Any) -> bytes:
    """JSON, with what is raw as it is."""
    return _text(tree).encode("utf-8", "surrogatepass")


def _text(tree: Any) -> str:
    if isinstance(tree, Raw):
        return str(tree)
    if isinstance(tree, Pairs):
        return "{" + ",".join(f"{json.dumps(str(key))}:{_text(held)}" for key, held in tree) + "}"
    if isinstance(tree, list):
        return "[" + ",".join(map(_text, tree)) + "]"
    return json.dumps(tree)
