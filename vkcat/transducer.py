"""An encoder-decoder with its weights and state on a device, or in the reference: texts in, symbols out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat.errors import InputError, mismatch
from vkcat.model import TransducerModel
from vkcat.ops.gates import HOLD, RESTART, STEP
from vkcat.runner import Runner, started
from vkcat.text import Alphabet

Array = NDArray[Any]


class Transducer:
    """Transduces up to `model.batch` sequences of symbols at a time. `runner` makes what runs the graphs."""

    def __init__(self, model: TransducerModel, weights: Mapping[str, Array], runner: Runner) -> None:
        self.model = model
        self._steps = started(runner, model, weights)
        _, self._written = model.config.symbols
        self._alphabet = Alphabet(model.config.read, "word", "encoder.input")
        output = model.config.output
        self._start = self._written.index(output.start or "")
        self._stop = self._written.index(output.end or "")

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text's characters, the end symbol included. Raises `InputError`; see `vkcat.text`."""
        return self._alphabet.encode(text)

    def transduce(self, texts: Sequence[str]) -> list[list[str]]:
        """The decoder's symbols for each text. At most `model.batch` texts; raises `InputError`."""
        if isinstance(texts, str):
            raise InputError(mismatch("texts", "a sequence of texts", "one text"))
        if not texts:
            return []
        if len(texts) > self.model.batch:
            raise InputError(mismatch("texts", f"at most {self.model.batch} at a time", len(texts)))
        self._read([self.encode_text(text) for text in texts])
        return [[self._written[identifier] for identifier in row] for row in self._write(len(texts))]

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
            self._steps.write(model.mode, mode[t])
            self._steps.step("encode")

    def _write(self, count: int) -> list[list[int]]:
        """Step the decoder until every row has ended."""
        model = self.model
        rows: list[list[int]] = [[] for _ in range(count)]
        running = set(range(count))
        # Streams that have ended go on unread until all have.
        self._steps.write(model.mode, np.full(model.batch, STEP, np.uint32))
        self._steps.write(model.token, np.full(model.batch, self._start, np.uint32))
        for _ in range(model.config.output.max_tokens):
            self._steps.step("decode")
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
