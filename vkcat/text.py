"""Text as token ids and back, by a model's symbols."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Sequence

from vkcat.config import BYTES, EmbeddingInput
from vkcat.errors import InputError, mismatch


class Alphabet:
    """Ids of an embedding's symbols, of UTF-8 bytes, or ids themselves. `subject` names the text in errors."""

    def __init__(self, read: EmbeddingInput, subject: str, where: str) -> None:
        self._read, self._subject, self._where = read, subject, where
        self._bytes = read.symbols == BYTES
        self._numbers = isinstance(read.symbols, int)
        self.symbols = read.symbols if isinstance(read.symbols, tuple) else ()
        self._ids = {symbol: at for at, symbol in enumerate(self.symbols)}

    def encode(self, text: str) -> list[int]:
        """Ids of a text's characters or bytes, the end symbol included.

        Raises `InputError` when the text is empty, too long, or has a character the model has no symbol for.
        """
        read, subject = self._read, self._subject
        if not text:
            raise InputError(mismatch(subject, "at least one character", f"an empty {subject}"))
        if read.max_tokens is not None and len(text) > read.max_tokens:
            most = f"at most {read.max_tokens} characters"
            remedy = f"see {self._where}.max_tokens in config.json"
            raise InputError(mismatch(f"{subject} {text[:20]!r}...", most, len(text), remedy))
        if self._numbers:
            return self._read_numbers(text)
        characters = text.lower() if read.lowercase else text
        if self._bytes:
            # What is no text at all, as half of a surrogate pair, has no bytes.
            return list(characters.encode("utf-8", "replace"))
        unknown = self._ids.get(read.unknown) if read.unknown is not None else None
        ids = [self._ids.get(character, unknown) for character in characters]
        if None in ids:
            stranger = characters[ids.index(None)]
            raise InputError(mismatch(f"{subject} {text!r}", "characters among the model's symbols", repr(stranger)))
        end = [self._ids[read.end]] if read.end is not None else []
        return [identifier for identifier in ids if identifier is not None] + end

    def _read_numbers(self, text: str) -> list[int]:
        """Without symbols, text is ids with spaces between."""
        words = text.split()
        # Python refuses to read thousands of digits; no id has more than 8.
        good = {word for word in words if word.isascii() and word.isdigit() and len(word) <= 8}
        bad = [word for word in words if word not in good or int(word) >= self._read.count]
        if bad or not words:
            expected = f"ids of 0 to {self._read.count - 1}, as the model has no symbols"
            raise InputError(mismatch(self._subject, expected, repr((bad or [text])[0])))
        return [int(word) for word in words]

    def writer(self) -> Writer:
        if self._numbers:
            return Writer(range(self._read.count))
        return Writer(self.symbols)


class Writer:
    """Turns tokens into text as they come. A character's bytes wait for its last; what is no UTF-8 becomes U+FFFD.

    `symbols` are none for bytes; longer ones than a character, and numbers, have spaces between.
    """

    def __init__(self, symbols: Sequence[str | int]) -> None:
        self._symbols = symbols
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._apart = isinstance(symbols, range) or any(len(str(symbol)) > 1 for symbol in symbols)
        self._begun = False

    def write(self, tokens: Iterable[int]) -> str:
        """Text that these tokens complete."""
        if not self._symbols:
            return self._decoder.decode(bytes(tokens))
        words = [str(self._symbols[token]) for token in tokens]
        text = (" " if self._apart else "").join(words)
        if self._apart and self._begun and text:
            text = f" {text}"
        self._begun = self._begun or bool(words)
        return text

    def end(self) -> str:
        """What was still waiting."""
        return "" if self._symbols else self._decoder.decode(b"", final=True)
