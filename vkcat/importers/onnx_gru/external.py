"""Weights that an ONNX file keeps in files of their own, beside it: from its own folder alone, and each byte once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from vkcat.errors import ModelError, mismatch
from vkcat.files import open_regular
from vkcat.importers.onnx_gru.messages import messages

MOST_DIGITS = 18


def load_external(path: Path, model: Any, external: int) -> None:
    """Put them into their tensors; `external` is TensorProto.EXTERNAL. Raises `ModelError`, and `OSError`."""
    folder = path.parent.resolve()
    left: dict[Path, int] = {}
    for tensor in (one for one in messages(model) if one.DESCRIPTOR.name == "TensorProto"):
        if tensor.data_location != external and not tensor.external_data:
            continue
        where = f"{path}: {tensor.name[:60]}"
        told = {entry.key: entry.value for entry in tensor.external_data}
        given = told.get("location", "")
        if not given or "\0" in given or not (folder / given).resolve().is_relative_to(folder):
            raise ModelError(mismatch(where, "external data in its own folder", given[:200]))
        file = (folder / given).resolve()
        tensor.raw_data = _part(where, file, told, left)
        tensor.data_location = 0
        del tensor.external_data[:]


def _part(where: str, path: Path, told: dict[str, str], left: dict[Path, int]) -> bytes:
    """Bytes of a file from `offset` on, `length` of them or the rest. `left` is how many more there may be of each."""
    offset, length = (_number(where, key, told.get(key)) for key in ("offset", "length"))
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        begin = offset or 0
        count = size - begin if length is None else length
        # However many tensors claim the same bytes, they are together no larger than the file.
        if not 0 <= count <= left.setdefault(path, size) or begin + count > size:
            raise ModelError(mismatch(where, f"bytes of their own among {size} of external data", (begin, count)))
        left[path] -= count
        file.seek(begin)
        data = file.read(count)
    if len(data) != count:
        raise ModelError(mismatch(where, f"{count} bytes of external data", len(data)))
    return data


def _number(where: str, key: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS):
        raise ModelError(mismatch(where, f"a number as {key} of external data", repr(text[:60])))
    return int(text)
