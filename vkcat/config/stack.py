"""A stack: what it reads, its blocks over a stream of one width, and what it gives."""

from __future__ import annotations

from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import asdict

from vkcat.config.blocks import (
    BLOCKS,
    DEPTHS,
    MOST_SOURCES,
    NORMS,
    AttnresDepth,
    Block,
    Depth,
    GruBlock,
    NoNorm,
    Norm,
    PlainDepth,
    RingAttentionBlock,
)
from vkcat.config.fields import Fields, Part, flag, read, read_kind, short, size, text, write
from vkcat.errors import ModelError, mismatch

BYTES = "bytes"
MOST_BLOCKS = 1024
MOST_SYMBOLS = 1 << 24


class EmbeddingInput(Part, frozen=True):
    """Tokens: symbols in the order of their ids; or "bytes", the 256 of UTF-8 text; or how many ids there are.

    `unknown` stands for any other symbol, `end` is appended to each sequence.
    """

    kind: ClassVar[str] = "embedding"
    symbols: tuple[str, ...] | str | int
    unknown: str | None = text()
    end: str | None = text()
    lowercase: bool = flag(False)
    max_tokens: int | None = size(None)

    @property
    def count(self) -> int:
        if isinstance(self.symbols, int):
            return self.symbols
        return 256 if self.symbols == BYTES else len(self.symbols)


class PatchesInput(Part, frozen=True, kw_only=True):
    """Images of `rows` by `columns` patches, each of `side` by `side` pixels of `channels`."""

    rows: int = size()
    columns: int = size()
    side: int = size()
    channels: int = size(1)

    @property
    def count(self) -> int:
        return self.rows * self.columns

    @property
    def pixels(self) -> int:
        """Numbers in a patch."""
        return self.side * self.side * self.channels


class FeaturesInput(Part, frozen=True, kw_only=True):
    """Vectors of `size` numbers, through a linear layer, or without `projection` as they are."""

    size: int = size()
    projection: bool = flag(True)


class TokenOutput(Part, frozen=True):
    """Tokens: they end at `end` or after `max_tokens`; an encoder-decoder's begin with `start`."""

    kind: ClassVar[str] = "token"
    start: str | None = text()
    end: str | None = text()
    max_tokens: int = size(64)


class ContinuousOutput(Part, frozen=True, kw_only=True):
    """Vectors of `size` numbers, through a linear layer, or without `projection` as the stack gives them."""

    kind: ClassVar[str] = "continuous"
    size: int = size()
    projection: bool = flag(True)


class Modulation(Part, frozen=True, kw_only=True):
    """The output is scaled and shifted by what the ring attention in block number `context` made."""

    context: int = size(least=0)


_PLAIN, _NONE = PlainDepth(), NoNorm()


class Stack(Struct, frozen=True):
    """A list of blocks over a stream of width `width`, with one depth policy and one norm."""

    width: int
    blocks: tuple[Block, ...]
    input: EmbeddingInput | None = None
    patches: PatchesInput | None = None
    features: FeaturesInput | None = None
    depth: Depth = _PLAIN
    norm: Norm = _NONE
    modulation: Modulation | None = None
    output: TokenOutput | ContinuousOutput | None = None

    @property
    def streams(self) -> bool:
        """Whether it can run step by step: every block reads forward."""
        return all(getattr(block, "direction", "forward") == "forward" for block in self.blocks)

    @property
    def last_width(self) -> int:
        """Channels of what the output reads."""
        width = self.width
        for block in self.blocks:
            if isinstance(block, GruBlock):
                width = block.hidden * len(block.suffixes)
        return width


def _embedding(value: object, path: str) -> EmbeddingInput:
    fields = Fields(value, path)
    fields.choice("kind", ["embedding"])
    parsed = read(EmbeddingInput, fields, symbols=_symbols(fields.any("symbols"), fields.where("symbols")))
    for key in ("unknown", "end"):
        _check_symbol(fields.where(key), getattr(parsed, key), parsed)
    return parsed


def _symbols(value: object, where: str) -> tuple[str, ...] | str | int:
    if value == BYTES:
        return BYTES
    if isinstance(value, int) and not isinstance(value, bool):
        if not 1 <= value <= MOST_SYMBOLS:
            raise ModelError(mismatch(where, f"1 to {MOST_SYMBOLS}", value))
        return value
    if not isinstance(value, list) or not value or not all(isinstance(symbol, str) for symbol in value):
        raise ModelError(mismatch(where, f'a list of different strings, "{BYTES}" or a count', short(value)))
    if len(set(value)) < len(value):
        raise ModelError(mismatch(where, "a list of different strings", short(value)))
    strange = [symbol for symbol in value if not symbol.isprintable() or not symbol]
    if strange:
        raise ModelError(mismatch(where, "printable characters in every symbol", short(strange[0])))
    return tuple(value)


def _check_symbol(where: str, symbol: str | None, read: EmbeddingInput | None) -> None:
    if symbol is None:
        return
    if read is None or not isinstance(read.symbols, tuple) or symbol not in read.symbols:
        raise ModelError(mismatch(where, "one of the stack's symbols", repr(symbol)))


def _token_output(fields: Fields, given: EmbeddingInput) -> TokenOutput:
    parsed = read(TokenOutput, fields)
    for key in ("start", "end"):
        _check_symbol(fields.where(key), getattr(parsed, key), given)
    return parsed


def _output(value: object, path: str, given: EmbeddingInput | None) -> TokenOutput | ContinuousOutput:
    fields = Fields(value, path)
    if fields.choice("kind", ["token", "continuous"]) == "continuous":
        return read(ContinuousOutput, fields)
    if given is None:
        raise ModelError(mismatch(path, "continuous, as the stack reads no tokens", "token"))
    return _token_output(fields, given)


def _named(value: object) -> object:
    """`"residual"` is short for `{"kind": "residual"}`."""
    return {"kind": value} if isinstance(value, str) else value


def read_stack(fields: Fields, *, with_output: bool) -> Stack:
    """A stack from the keys of an object that has, perhaps, others too. Raises `ModelError` naming the key."""
    embedding = _embedding(fields.take("input", dict), fields.where("input")) if "input" in fields else None
    patches = _optional(PatchesInput, fields, "patches")
    features = _optional(FeaturesInput, fields, "features")
    if embedding is None and patches is None and features is None:
        raise ModelError(mismatch(fields.where("input"), "an input, patches or features", "none of them"))
    blocks = fields.take("blocks", list)
    if not blocks:
        raise ModelError(mismatch(fields.where("blocks"), "at least one block", "none"))
    if len(blocks) > MOST_BLOCKS:
        raise ModelError(mismatch(fields.where("blocks"), f"at most {MOST_BLOCKS} blocks", len(blocks)))
    stack = Stack(
        input=embedding,
        patches=patches,
        features=features,
        width=fields.size("width"),
        blocks=tuple(read_kind(BLOCKS, block, f"{fields.where('blocks')}[{at}]") for at, block in enumerate(blocks)),
        depth=_PLAIN
        if "depth" not in fields
        else read_kind(DEPTHS, _named(fields.any("depth")), fields.where("depth")),
        norm=_NONE if "norm" not in fields else read_kind(NORMS, _named(fields.any("norm")), fields.where("norm")),
        modulation=_optional(Modulation, fields, "modulation"),
        output=_output(fields.take("output", dict), fields.where("output"), embedding) if with_output else None,
    )
    _check(stack, fields)
    return stack


def _optional(cls: type[Any], fields: Fields, key: str) -> Any:
    return read(cls, Fields(fields.any(key), fields.where(key))) if key in fields else None


def _check(stack: Stack, fields: Fields) -> None:
    """What only several keys together can get wrong."""
    for at, block in enumerate(stack.blocks):
        if isinstance(block, GruBlock) and block.hidden != stack.width and not isinstance(stack.depth, PlainDepth):
            where = f"{fields.where('blocks')}[{at}].hidden"
            raise ModelError(mismatch(where, f"{stack.width}, the width, with depth {stack.depth.kind}", block.hidden))
    if not stack.streams and not (
        all(isinstance(block, GruBlock) for block in stack.blocks)
        and isinstance(stack.depth, PlainDepth)
        and isinstance(stack.norm, NoNorm)
    ):
        where = fields.where("blocks")
        raise ModelError(mismatch(where, "gru blocks, plain depth and no norm with another direction", "others"))
    if not stack.streams and (stack.patches is not None or None not in (stack.input, stack.features)):
        raise ModelError(mismatch(fields.path, "input or features alone with another direction", "several, or patches"))
    if stack.features is not None and not stack.features.projection and stack.features.size != stack.width:
        where = f"{fields.where('features')}.size"
        raise ModelError(mismatch(where, f"{stack.width}, the width, without projection", stack.features.size))
    output = stack.output
    if isinstance(output, ContinuousOutput) and not output.projection and output.size != stack.last_width:
        where = f"{fields.where('output')}.size"
        raise ModelError(mismatch(where, f"{stack.last_width}, the last block's, without projection", output.size))
    if isinstance(stack.depth, AttnresDepth) and -(-len(stack.blocks) // stack.depth.block) >= MOST_SOURCES:
        where = f"{fields.where('depth')}.block"
        sources = f"one that leaves at most {MOST_SOURCES - 1} sources of {len(stack.blocks)} blocks"
        raise ModelError(mismatch(where, sources, stack.depth.block))
    if stack.modulation is not None:
        context = stack.modulation.context
        if context >= len(stack.blocks) or not isinstance(stack.blocks[context], RingAttentionBlock):
            where = f"{fields.where('modulation')}.context"
            raise ModelError(mismatch(where, "the number of a ring_attention block", context))


def write_stack(stack: Stack) -> dict[str, Any]:
    """The JSON object that `read_stack` reads back as `stack`."""
    value: dict[str, Any] = {}
    if stack.input is not None:
        value["input"] = _written(stack.input)
    for key in ("patches", "features"):
        if (part := getattr(stack, key)) is not None:
            value[key] = asdict(part)
    value |= {"width": stack.width, "depth": write(stack.depth), "norm": write(stack.norm)}
    value["blocks"] = [write(block) for block in stack.blocks]
    if stack.modulation is not None:
        value["modulation"] = asdict(stack.modulation)
    if stack.output is not None:
        value["output"] = _written(stack.output)
    return value


def _written(part: EmbeddingInput | TokenOutput | ContinuousOutput) -> dict[str, Any]:
    """An input or output without what is absent."""
    given = {"kind": part.kind, **{key: value for key, value in asdict(part).items() if value is not None}}
    return {key: list(value) if isinstance(value, tuple) else value for key, value in given.items()}
