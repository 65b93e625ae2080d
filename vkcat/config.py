"""Model configurations: frozen sizes and block lists, read strictly from `config.json`.

Every key is checked; an unknown one is an error, so a misspelt option is never ignored. Defaults live here and nowhere
else.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from vkcat.errors import ModelError, mismatch

FORMAT = "vkcat/1"
FILE = "config.json"
MAX_WIDTH = 1 << 16

T = TypeVar("T")


@dataclass(frozen=True)
class GruBlock:
    """A GRU layer: `hidden` units, and whether the reset gate acts after or before the recurrent product."""

    hidden: int
    reset: str = "after"

    kind = "gru"


Block = GruBlock


@dataclass(frozen=True)
class EmbeddingInput:
    """Symbols in the order of their ids; `unknown` stands for any other, `end` is appended to each sequence."""

    symbols: tuple[str, ...]
    unknown: str | None = None
    end: str | None = None
    lowercase: bool = False
    max_tokens: int = 256

    kind = "embedding"


@dataclass(frozen=True)
class TokenOutput:
    """Greedy tokens: decoding begins with `start`, ends at `end` or after `max_tokens`."""

    start: str
    end: str
    max_tokens: int = 256

    kind = "token"


@dataclass(frozen=True)
class Stack:
    """A list of blocks over a stream of width `width`, with one depth policy and one norm."""

    input: EmbeddingInput
    width: int
    blocks: tuple[Block, ...]
    depth: str = "plain"
    norm: str = "none"
    output: TokenOutput | None = None


@dataclass(frozen=True)
class ModelConfig:
    """An encoder whose final states start a decoder that writes tokens."""

    name: str
    encoder: Stack
    decoder: Stack
    dtype: str = "float32"

    @property
    def output(self) -> TokenOutput:
        assert self.decoder.output is not None
        return self.decoder.output


class _Fields:
    """A JSON object whose keys are taken one by one; what is left over is an error."""

    def __init__(self, value: object, path: str) -> None:
        if not isinstance(value, dict):
            raise ModelError(mismatch(path, "an object", _short(value)))
        self._left = dict(value)
        self._path = path

    def where(self, key: str) -> str:
        return f"{self._path}.{key}" if not self._path.endswith(FILE) else f"{self._path}: {key}"

    def take(self, key: str, kind: type[T], *default: T | None) -> T:
        if key not in self._left:
            if default:
                return default[0]  # type: ignore[return-value]
            raise ModelError(mismatch(self.where(key), f"a value of type {kind.__name__}", "no such key"))
        value = self._left.pop(key)
        # In Python a bool is an int; in a configuration it is not.
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise ModelError(mismatch(self.where(key), kind.__name__, _short(value)))
        return value

    def size(self, key: str, *default: int) -> int:
        value = self.take(key, int, *default)
        if not 1 <= value <= MAX_WIDTH:
            raise ModelError(mismatch(self.where(key), f"1 to {MAX_WIDTH}", value))
        return value

    def choice(self, key: str, choices: Sequence[str], *default: str) -> str:
        value = self.take(key, str, *default)
        if value not in choices:
            raise ModelError(mismatch(self.where(key), " or ".join(map(repr, choices)), repr(value)))
        return value

    def done(self) -> None:
        if self._left:
            raise ModelError(
                mismatch(self._path, "no other keys", f"unknown {', '.join(map(repr, sorted(self._left)))}")
            )


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _input(value: object, path: str) -> EmbeddingInput:
    fields = _Fields(value, path)
    fields.choice("kind", ["embedding"])
    symbols = fields.take("symbols", list)
    if not symbols or not all(isinstance(symbol, str) for symbol in symbols) or len(set(symbols)) < len(symbols):
        raise ModelError(mismatch(fields.where("symbols"), "a list of different strings", _short(symbols)))
    strange = [symbol for symbol in symbols if not symbol.isprintable() or not symbol]
    if strange:
        raise ModelError(mismatch(fields.where("symbols"), "printable characters in every symbol", _short(strange[0])))
    parsed = EmbeddingInput(
        symbols=tuple(symbols),
        unknown=fields.take("unknown", str, None),
        end=fields.take("end", str, None),
        lowercase=fields.take("lowercase", bool, EmbeddingInput.lowercase),
        max_tokens=fields.size("max_tokens", EmbeddingInput.max_tokens),
    )
    fields.done()
    for key in ("unknown", "end"):
        _check_symbol(fields.where(key), getattr(parsed, key), parsed.symbols)
    return parsed


def _check_symbol(where: str, symbol: str | None, symbols: tuple[str, ...]) -> None:
    if symbol is not None and symbol not in symbols:
        raise ModelError(mismatch(where, "one of the stack's symbols", repr(symbol)))


def _output(value: object, path: str, symbols: tuple[str, ...]) -> TokenOutput:
    fields = _Fields(value, path)
    fields.choice("kind", ["token"])
    parsed = TokenOutput(
        start=fields.take("start", str),
        end=fields.take("end", str),
        max_tokens=fields.size("max_tokens", TokenOutput.max_tokens),
    )
    fields.done()
    for key in ("start", "end"):
        _check_symbol(fields.where(key), getattr(parsed, key), symbols)
    return parsed


def _block(value: object, path: str) -> Block:
    fields = _Fields(value, path)
    fields.choice("kind", ["gru"])
    block = GruBlock(hidden=fields.size("hidden"), reset=fields.choice("reset", ["after", "before"], GruBlock.reset))
    fields.done()
    return block


def _stack(value: object, path: str, *, with_output: bool) -> Stack:
    fields = _Fields(value, path)
    read = _input(fields.take("input", dict), fields.where("input"))
    blocks = fields.take("blocks", list)
    if not blocks:
        raise ModelError(mismatch(fields.where("blocks"), "at least one block", "none"))
    stack = Stack(
        input=read,
        width=fields.size("width"),
        blocks=tuple(_block(block, f"{fields.where('blocks')}[{at}]") for at, block in enumerate(blocks)),
        depth=fields.choice("depth", ["plain"], Stack.depth),
        norm=fields.choice("norm", ["none"], Stack.norm),
        output=_output(fields.take("output", dict), fields.where("output"), read.symbols) if with_output else None,
    )
    fields.done()
    return stack


def parse(value: object, path: str = FILE) -> ModelConfig:
    """A configuration from decoded JSON. Raises `ModelError` naming the key, what was expected and what came."""
    fields = _Fields(value, path)
    fields.choice("format", [FORMAT])
    config = ModelConfig(
        name=fields.take("name", str),
        encoder=_stack(fields.take("encoder", dict), fields.where("encoder"), with_output=False),
        decoder=_stack(fields.take("decoder", dict), fields.where("decoder"), with_output=True),
        dtype=fields.choice("dtype", ["float32"], ModelConfig.dtype),
    )
    fields.done()
    states = [[block.hidden for block in stack.blocks] for stack in (config.encoder, config.decoder)]
    if states[0] != states[1]:
        raise ModelError(
            mismatch(fields.where("decoder.blocks"), f"hidden sizes {states[0]} as the encoder's", states[1])
        )
    return config


def load_config(folder: Path) -> ModelConfig:
    """Read `folder/config.json`. Raises `ModelError`."""
    path = folder / FILE
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise ModelError(
            mismatch(str(path), "a model's configuration", "no such file", "see `vkcat import -h`")
        ) from error
    except OSError as error:
        raise ModelError(mismatch(str(path), "a readable file", error.strerror)) from error
    except (ValueError, RecursionError) as error:
        raise ModelError(mismatch(str(path), "JSON in UTF-8", str(error))) from error
    return parse(value, str(path))


def to_json(config: ModelConfig) -> dict[str, Any]:
    """The JSON object that `parse` reads back as `config`."""
    return {
        "format": FORMAT,
        "name": config.name,
        "dtype": config.dtype,
        "encoder": _stack_json(config.encoder),
        "decoder": _stack_json(config.decoder),
    }


def _stack_json(stack: Stack) -> dict[str, Any]:
    read = stack.input
    value: dict[str, Any] = {
        "input": {
            "kind": read.kind,
            "symbols": list(read.symbols),
            **({"unknown": read.unknown} if read.unknown is not None else {}),
            **({"end": read.end} if read.end is not None else {}),
            "lowercase": read.lowercase,
            "max_tokens": read.max_tokens,
        },
        "width": stack.width,
        "depth": stack.depth,
        "norm": stack.norm,
        "blocks": [{"kind": block.kind, "hidden": block.hidden, "reset": block.reset} for block in stack.blocks],
    }
    if stack.output is not None:
        written = stack.output
        value["output"] = {
            "kind": written.kind,
            "start": written.start,
            "end": written.end,
            "max_tokens": written.max_tokens,
        }
    return value
