"""Text as tokens: symbols, bytes of UTF-8 that arrive in pieces, ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vkcat.config import EmbeddingInput
from vkcat.errors import InputError
from vkcat.text import Alphabet

BYTES = Alphabet(EmbeddingInput(symbols="bytes"), "prompt", "input")
NUMBERS = Alphabet(EmbeddingInput(symbols=300), "prompt", "input")


@given(st.binary(max_size=40))
def test_bytes_one_by_one_are_the_text(data: bytes) -> None:
    writer = BYTES.writer()
    assert "".join(writer.write([byte]) for byte in data) + writer.end() == data.decode("utf-8", "replace")


@given(st.text(min_size=1, max_size=20))
def test_text_comes_back(text: str) -> None:
    writer = BYTES.writer()
    kept = text.encode("utf-8", "replace").decode()
    assert writer.write(BYTES.encode(text)) + writer.end() == kept


def test_a_character_waits_for_its_last_byte() -> None:
    writer = BYTES.writer()
    assert [writer.write([byte]) for byte in "\u20ac".encode()] == ["", "", "\u20ac"]
    assert writer.write(b"\xe2\x82") == ""
    assert writer.end() == "\ufffd"


def test_symbols_longer_than_a_character_stand_apart() -> None:
    writer = Alphabet(EmbeddingInput(symbols=("HH", "EH1", "L")), "prompt", "input").writer()
    assert writer.write([0]) + writer.write([1, 2]) + writer.end() == "HH EH1 L"
    letters = Alphabet(EmbeddingInput(symbols=("a", "b")), "prompt", "input").writer()
    assert letters.write([0]) + letters.write([1]) == "ab"


def test_without_symbols_text_is_ids() -> None:
    assert NUMBERS.encode("0 17  299") == [0, 17, 299]
    assert NUMBERS.writer().write([17, 299]) == "17 299"
    for bad in ("300", "-1", "1.5", "one", "  ", "\u0661"):
        with pytest.raises(InputError, match="prompt: expected ids of 0 to 299, as the model has no symbols"):
            NUMBERS.encode(bad)
