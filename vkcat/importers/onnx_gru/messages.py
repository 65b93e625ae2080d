"""The protobuf messages that an ONNX file consists of, and whether their texts are texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vkcat.errors import ModelError, mismatch


def messages(message: Any) -> Iterator[Any]:
    """A message and every one in it: in attributes, in graphs inside of nodes, in functions."""
    pending = [message]
    while pending:
        one = pending.pop()
        yield one
        for field, value in one.ListFields():
            if field.message_type is not None:
                pending += value if hasattr(value, "add") else [value]


def check_texts(path: Path, model: Any) -> None:
    """Raises `ModelError` for a name that is no UTF-8: protobuf gives its bytes, which nobody expects."""
    for one in messages(model):
        for field, value in one.ListFields():
            if field.type == field.TYPE_STRING:
                each = [value] if isinstance(value, (str, bytes)) else list(value)
                wrong = [text for text in each if not isinstance(text, str)]
                if wrong:
                    raise ModelError(mismatch(f"{path}: {field.name}", "text in UTF-8", repr(wrong[0][:60])))
