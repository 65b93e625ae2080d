"""A model with its weights and state on a device, or in the reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.errors import InputError, mismatch
from vkcat.executor import Steps
from vkcat.graph import Graph
from vkcat.model import Model
from vkcat.ops.gates import HOLD, RESTART, STEP

Array = NDArray[Any]


class Session:
    """Transduces up to `model.batch` sequences of symbols at a time.

    `runner` makes what runs the graphs: `Executor` on a device or `ReferenceExecutor`.
    """

    def __init__(self, model: Model, weights: Mapping[str, Array], runner: Callable[[Sequence[Graph]], Steps]) -> None:
        self.model = model
        self._steps = runner(model.graphs)
        # Streams that have ended go on unread until all have.
        self._steps.write(model.decode_mode, np.full(model.batch, STEP, np.uint32))
        for name, tensor in model.weights.items():
            self._steps.write(tensor, weights[name])
        read = model.config.encoder.input
        self._ids = {symbol: at for at, symbol in enumerate(read.symbols)}
        self._end = [self._ids[read.end]] if read.end is not None else []
        written = model.config.decoder.input.symbols
        self._start = written.index(model.config.output.start)
        self._stop = written.index(model.config.output.end)

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text's characters, the end symbol included.

        Raises `InputError` when the text is empty, too long, or has a character the model has no symbol for.
        """
        read = self.model.config.encoder.input
        if not text:
            raise InputError(mismatch("word", "at least one character", "an empty word"))
        if len(text) > read.max_tokens:
            shown = f"{text[:20]!r}..."
            most = f"at most {read.max_tokens} characters"
            raise InputError(mismatch(f"word {shown}", most, len(text), "see encoder.input.max_tokens in config.json"))
        characters = text.lower() if read.lowercase else text
        unknown = self._ids[read.unknown] if read.unknown is not None else None
        ids = [self._ids.get(character, unknown) for character in characters]
        if None in ids:
            stranger = characters[ids.index(None)]
            raise InputError(mismatch(f"word {text!r}", "characters among the model's symbols", repr(stranger)))
        return [identifier for identifier in ids if identifier is not None] + self._end

    def transduce(self, texts: Sequence[str]) -> list[list[str]]:
        """The decoder's symbols for each text. At most `model.batch` texts; raises `InputError`."""
        if isinstance(texts, str):
            raise InputError(mismatch("texts", "a sequence of texts", "one text"))
        if not texts:
            return []
        if len(texts) > self.model.batch:
            raise InputError(mismatch("texts", f"at most {self.model.batch} at a time", len(texts)))
        symbols = self.model.config.decoder.input.symbols
        self._read([self.encode_text(text) for text in texts])
        return [[symbols[identifier] for identifier in row] for row in self._write(len(texts))]

    def _read(self, rows: Sequence[Sequence[int]]) -> None:
        """Step the encoder through all rows; a row that has ended holds its state."""
        model = self.model
        length = max(len(row) for row in rows)
        ids = np.zeros((length, model.batch), np.uint32)
        mode = np.full((length, model.batch), HOLD, np.uint32)
        # Streams without a text restart too, so that no stream holds what memory held before.
        mode[0] = RESTART
        for stream, row in enumerate(rows):
            ids[: len(row), stream] = row
            mode[1 : len(row), stream] = STEP
        for t in range(length):
            self._steps.write(model.ids, ids[t])
            self._steps.write(model.encode_mode, mode[t])
            self._steps.step(model.encode.name)

    def _write(self, count: int) -> list[list[int]]:
        """Step the decoder until every row has ended."""
        model = self.model
        rows: list[list[int]] = [[] for _ in range(count)]
        running = set(range(count))
        self._steps.write(model.token, np.full(model.batch, self._start, np.uint32))
        for _ in range(model.config.output.max_tokens):
            self._steps.step(model.decode.name)
            chosen = self._steps.read(model.chosen)
            for stream in list(running):
                if chosen[stream] == self._stop:
                    running.remove(stream)
                else:
                    rows[stream].append(int(chosen[stream]))
            if not running:
                break
        return rows

    def close(self) -> None:
        self._steps.close()
