"""Model configurations: frozen sizes and block lists, read strictly from `config.json`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import Struct

from vkcat import strict_json
from vkcat.config.blocks import GruBlock
from vkcat.config.fields import FILE, Fields
from vkcat.config.stack import EmbeddingInput, Stack, TokenOutput, read_stack, write_stack
from vkcat.errors import ModelError, mismatch
from vkcat.files import inside

FORMAT = "vkcat/1"
DTYPES = ("float32", "float16", "float16-rounded")
"""vkcat.kernel.PRECISIONS, which a configuration cannot import: a test compares them."""


class StreamConfig(Struct, frozen=True):
    """One stack over one stream: it reads tokens, patches or features and gives tokens or vectors at each step."""

    name: str
    stack: Stack
    dtype: str = DTYPES[0]


class TransducerConfig(Struct, frozen=True):
    """An encoder whose final states start a decoder that writes tokens."""

    name: str
    encoder: Stack
    decoder: Stack
    dtype: str = DTYPES[0]

    @property
    def symbols(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The encoder's, and the decoder's."""
        return _listed(self.encoder.input), _listed(self.decoder.input)

    @property
    def read(self) -> EmbeddingInput:
        assert self.encoder.input is not None
        return self.encoder.input

    @property
    def output(self) -> TokenOutput:
        assert isinstance(self.decoder.output, TokenOutput)
        return self.decoder.output


ModelConfig = StreamConfig | TransducerConfig


def _listed(read: EmbeddingInput | None) -> tuple[str, ...]:
    assert read is not None
    assert isinstance(read.symbols, tuple)
    return read.symbols


def parse(value: object, path: str = FILE) -> ModelConfig:
    """A configuration from decoded JSON. Raises `ModelError` naming the key, what was expected and what came."""
    fields = Fields(value, path)
    fields.choice("format", [FORMAT])
    name = fields.take("name", str)
    if not name or not name.isprintable():
        raise ModelError(mismatch(fields.where("name"), "printable characters", ascii(name)))
    dtype = fields.choice("dtype", DTYPES) if "dtype" in fields else DTYPES[0]
    config: ModelConfig
    if "encoder" in fields or "decoder" in fields:
        config = TransducerConfig(
            name=name, encoder=_part(fields, "encoder"), decoder=_part(fields, "decoder"), dtype=dtype
        )
        _check_transducer(config, fields)
    else:
        config = StreamConfig(name=name, stack=read_stack(fields, with_output=True), dtype=dtype)
    fields.done()
    return config


def _part(fields: Fields, key: str) -> Stack:
    part = Fields(fields.take(key, dict), fields.where(key))
    stack = read_stack(part, with_output=key == "decoder")
    part.done()
    return stack


def _check_transducer(config: TransducerConfig, fields: Fields) -> None:
    for key, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        where = fields.where(key)
        if stack.input is None or not isinstance(stack.input.symbols, tuple):
            raise ModelError(mismatch(f"{where}.input.symbols", "a list of symbols", "none"))
        if any(part is not None for part in (stack.patches, stack.features, stack.modulation)):
            raise ModelError(mismatch(where, "tokens alone", "patches, features or modulation"))
        others = [block.kind for block in stack.blocks if not isinstance(block, GruBlock)]
        if others:
            raise ModelError(mismatch(f"{where}.blocks", "gru blocks alone", others[0]))
        if not stack.streams:
            raise ModelError(mismatch(f"{where}.blocks", "the direction forward in an encoder-decoder", "another"))
    if not isinstance(config.decoder.output, TokenOutput):
        raise ModelError(mismatch(fields.where("decoder.output.kind"), "'token'", "'continuous'"))
    for key in ("start", "end"):
        if getattr(config.decoder.output, key) is None:
            where = fields.where(f"decoder.output.{key}")
            raise ModelError(mismatch(where, "a value of type str", "no such key"))
    states = [[getattr(block, "hidden", 0) for block in stack.blocks] for stack in (config.encoder, config.decoder)]
    if states[0] != states[1]:
        raise ModelError(
            mismatch(fields.where("decoder.blocks"), f"hidden sizes {states[0]} as the encoder's", states[1])
        )


def load_config(folder: Path) -> ModelConfig:
    """Read `folder/config.json`. Raises `ModelError`."""
    try:
        path = inside(folder, FILE)
    except OSError as error:
        raise ModelError(mismatch(str(folder / FILE), "a readable file", error.strerror)) from error
    return load_file(path)


def load_file(path: Path) -> ModelConfig:
    """Read a configuration file. Raises `ModelError`."""
    try:
        value = strict_json.read(path)
    except FileNotFoundError as error:
        raise ModelError(
            mismatch(str(path), "a model's configuration", "no such file", "see `vkcat import -h`")
        ) from error
    except OSError as error:
        raise ModelError(mismatch(str(path), "a readable file", error.strerror)) from error
    except ValueError as error:
        raise ModelError(mismatch(str(path), "JSON in UTF-8", str(error))) from error
    return parse(value, str(path))


def to_json(config: ModelConfig) -> dict[str, Any]:
    """The JSON object that `parse` reads back as `config`."""
    value: dict[str, Any] = {"format": FORMAT, "name": config.name, "dtype": config.dtype}
    if isinstance(config, StreamConfig):
        return value | write_stack(config.stack)
    return value | {"encoder": write_stack(config.encoder), "decoder": write_stack(config.decoder)}
