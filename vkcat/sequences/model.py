"""A model folder whose layers read in reverse or both ways, over whole sequences."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from vkcat.arrays import check_ids, float32, numbers
from vkcat.chunks import Chunks, in_pieces
from vkcat.config import StreamConfig
from vkcat.device.interface import Device
from vkcat.errors import InputError, ModelError, mismatch
from vkcat.model import ROW_BINDINGS, Rows, build_sequence, reads_rows, sequence_rows
from vkcat.model.sequence import Pass
from vkcat.ops.gates import RESTART
from vkcat.runner import Runner, started
from vkcat.sequences.conventions import step_counts
from vkcat.sequences.steps import pieces_through, step_modes, step_through, within_lengths
from vkcat.stored import StoredModel, read_model

Array = NDArray[Any]


class Sequences:
    """`batch` sequences of one model of GRU blocks, of any direction, at a time.

    `model` is a folder or what `read_model` made of it; `device`, `backend` and `schedule` are as for `vkcat.load`, or
    a `runner` stands for all three. Raises `ModelError` for a model with other blocks or inputs, `DeviceError` when it
    does not fit the device.
    """

    def __init__(
        self,
        model: str | Path | StoredModel,
        *,
        batch: int = 1,
        device: Device | str | int | None = None,
        backend: str = "vulkan",
        schedule: str = "replay",
        runner: Runner | None = None,
    ) -> None:
        stored = model if isinstance(model, StoredModel) else read_model(model)
        if not isinstance(stored.config, StreamConfig) or stored.config.stack.streams:
            raise ModelError(mismatch("sequences", "a model with another direction than forward", "one without"))
        self.model = build_sequence(stored.config, batch)
        self.batch = batch
        runner = runner or Runner("sequences", device, backend, schedule)
        self._dtype = runner.dtype
        self._steps = started(runner, self.model, stored.weights)
        self._chunks: Chunks | None = None
        if runner.binds(ROW_BINDINGS) and reads_rows(stored.config.stack):
            self._chunks = Chunks(self._rows, self._steps, runner, self.model.shared.constants)
        self._passes: dict[int, Mapping[str, Rows]] = {}

    def run(self, x: ArrayLike, lengths: ArrayLike | None = None) -> Array:
        """Outputs (B, T, V) of every step, in float32 (in the reference, float64).

        x is tokens (B, T) or features (B, T, F), or one sequence without B when there is one. `lengths` (B) are the
        steps of each sequence; past them outputs are zero. Raises `InputError`, for lengths `ShapeError` too.
        """
        given = self._tokens(x) if self.model.config.stack.input is not None else self._features(x)
        steps = given.shape[1]
        ends = step_counts("sequences", lengths, steps, self.batch)
        modes = step_modes(ends, steps)
        # Also those of no length begin, so that nothing holds what memory held before.
        modes[:1] = RESTART
        stream = given.swapaxes(0, 1)
        for each in self.model.passes:
            stream = self._go_through(each, stream, ends, modes)
        stream[np.arange(steps)[:, None] >= ends] = 0
        return np.ascontiguousarray(stream.swapaxes(0, 1))

    def _go_through(self, each: Pass, stream: Array, ends: Array, modes: Array) -> Array:
        """(T, B, ...) through one pass, (T, B, D) of all directions."""

        def turned(array: Array, reverse: bool) -> Array:
            return within_lengths(array, ends) if reverse else array

        given = [turned(stream, reverse) for reverse in each.reversals]
        if self._chunks is not None and in_pieces(len(stream), self.batch):
            made = pieces_through(self._chunks, each.graph, self._steps, given, self.model.mode, ends, restart=True)
        else:
            made = step_through(
                self._steps, each.graph, each.inputs, each.outputs, given, self.model.mode, modes, self._dtype
            )
        return np.concatenate([turned(y, reverse) for y, reverse in zip(made, each.reversals, strict=True)], axis=2)

    def _rows(self, kind: str, steps: int) -> Rows:
        """The pass `kind` over so many steps. All passes are made at once: they have the lengths in common."""
        if steps not in self._passes:
            self._passes[steps] = sequence_rows(self.model, steps)
        return self._passes[steps][kind]

    def _tokens(self, x: ArrayLike) -> Array:
        assert self.model.config.stack.input is not None
        count = self.model.config.stack.input.count
        ids = numbers("tokens", self._batched("tokens", x, f"({self.batch}, T)", 2), "iu")
        check_ids("tokens", ids, count)
        return ids.astype(np.uint32)

    def _features(self, x: ArrayLike) -> Array:
        features = self.model.config.stack.features
        assert features is not None
        expected = f"({self.batch}, T, {features.size})"
        given = self._batched("features", x, expected, 3)
        if given.shape[2] != features.size:
            raise InputError(mismatch("features", expected, given.shape))
        return float32("features", given)

    def _batched(self, subject: str, x: ArrayLike, expected: str, dimensions: int) -> Array:
        try:
            array = np.asarray(x)
        except ValueError as error:
            raise InputError(mismatch(subject, expected, "rows of different lengths", "see lengths")) from error
        array = array[None] if self.batch == 1 and array.ndim == dimensions - 1 else array
        if array.ndim != dimensions or len(array) != self.batch:
            raise InputError(mismatch(subject, expected, array.shape))
        return array

    def close(self) -> None:
        self._steps.close()
