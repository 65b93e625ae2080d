"""Symbols of an embedding: what an importer's `--symbols` says."""

from __future__ import annotations

from pathlib import Path

from vkcat.config import BYTES
from vkcat.errors import ModelError, mismatch
from vkcat.files import contents

MOST_BYTES = 64 << 20

Symbols = tuple[str, ...] | str


def read_symbols(given: str, count: int, where: str) -> Symbols:
    """ "bytes", or the lines of a UTF-8 file: one for each of the `count` rows of the embedding `where`.

    A space is a symbol; a last line needs no end. Raises `ModelError`.
    """
    if given == BYTES:
        if count != 256:
            raise ModelError(mismatch(where, "256 rows with --symbols bytes", count))
        return BYTES
    try:
        text = contents(Path(given), MOST_BYTES).decode("utf-8")
    except OSError as error:
        raise ModelError(mismatch(given, f"a file of symbols, or {BYTES!r}", error.strerror)) from error
    except UnicodeDecodeError as error:
        raise ModelError(mismatch(given, "UTF-8", str(error))) from error
    symbols = tuple(line.removesuffix("\r") for line in text.removesuffix("\n").split("\n"))
    if len(symbols) != count:
        raise ModelError(mismatch(given, f"{count} symbols, one a line, as {where} has rows", len(symbols)))
    lines: dict[str, int] = {}
    for line, symbol in enumerate(symbols, 1):
        if not symbol or not symbol.isprintable():
            raise ModelError(mismatch(f"{given}: line {line}", "printable characters", repr(symbol)))
        if symbol in lines:
            raise ModelError(mismatch(f"{given}: line {line}", "another symbol than before", repr(symbol)))
        lines[symbol] = line
    return symbols
