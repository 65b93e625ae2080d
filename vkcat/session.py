"""Streams of a model, side by side on a device or in the reference: read, write, save, go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vkcat import states
from vkcat.arrays import check_ids, float32, numbers, whole
from vkcat.chunks import Chunks, in_pieces
from vkcat.config import StreamConfig
from vkcat.device.interface import Device
from vkcat.errors import DeviceError, InputError, ModelError, mismatch
from vkcat.flights import GRAPH, Flight, Flights
from vkcat.graph import Tensor
from vkcat.images import cut
from vkcat.model import ROW_BINDINGS, build_stream, reads_rows, stream_rows
from vkcat.ops.gates import HOLD, RESTART, STEP
from vkcat.runner import Runner, started
from vkcat.schedules import SUBMIT_LIMIT_MS
from vkcat.stored import StoredModel, read_model
from vkcat.telemetry import Record, Telemetry

Array = NDArray[Any]
Tokens = Sequence[int] | Sequence[Sequence[int]] | Array


class Session:
    """`batch` streams of one model. They do not influence each other, unless experts have a capacity to share.

    `model` is a folder or what `read_model` made of it; `device`, `backend` and `schedule` are as for `vkcat.load`, or
    a `runner` stands for all three and for `submit_limit_ms`, how long a submission of many steps may take.

    Sequences of 8 steps or more are read many steps at a time, unless `chunked` is off or each step is to be told of;
    the last bits of what they give are not those of single steps. The reference always goes step by step. `on_step` is
    given the telemetry of each step (see vkcat/telemetry.py), which only then is computed. After an interruption, as by
    KeyboardInterrupt, streams are where they happened to be: `reset` them all, or `load_state`.
    Outputs are (B, V) logits, or (B, N) of a continuous output, in float32 (in the reference, float64).
    """

    def __init__(
        self,
        model: str | Path | StoredModel,
        *,
        batch: int = 1,
        device: Device | str | int | None = None,
        backend: str = "vulkan",
        schedule: str = "replay",
        submit_limit_ms: float = SUBMIT_LIMIT_MS,
        chunked: bool = True,
        runner: Runner | None = None,
        on_step: Callable[[Record], None] | None = None,
    ) -> None:
        stored = model if isinstance(model, StoredModel) else read_model(model)
        if not isinstance(stored.config, StreamConfig):
            raise ModelError(mismatch("session", "a model of one stream", "an encoder-decoder", "see vkcat.load"))
        self._stored = stored
        self.model = build_stream(stored.config, batch)
        self.batch = batch
        self._on_step = on_step
        self._telemetry = Telemetry(self.model) if on_step is not None else None
        runner = runner or Runner("session", device, backend, schedule, submit_limit_ms=submit_limit_ms)
        self._dtype = runner.dtype
        self._steps = started(runner, self.model, stored.weights)
        with ExitStack() as made:
            made.callback(self._steps.close)
            self._begin_all(runner, chunked=chunked)
            made.pop_all()

    def _begin_all(self, runner: Runner, *, chunked: bool) -> None:
        """What a session remembers besides what is on the device, before anything was read."""
        batch, on_step = self.batch, self._on_step
        self._chunks: Chunks | None = None
        if chunked and on_step is None and runner.binds(ROW_BINDINGS) and reads_rows(self.model.config.stack):
            make = partial(stream_rows, self.model)
            self._chunks = Chunks(make, self._steps, runner, self.model.shared.constants)
        self._outputs: Array = np.zeros((batch, self.model.width), self._dtype)
        self._fresh = np.ones(batch, bool)
        self._changes = 0
        # What is being read; after an error or interrupt, how much of it was is unknown.
        self._reading = ""
        history = self.model.history
        self._flights = Flights(self._steps, history, batch) if history is not None else None
        self._mode: Array = np.full(batch, HOLD, np.uint32)
        self._steps.write(self.model.mode, self._mode)
        self._clear(np.ones(batch, bool))

    @property
    def outputs(self) -> Array:
        """The output (B, V) of each stream's last step."""
        self._settle()
        return self._outputs.copy()

    def prefill(self, tokens: Tokens) -> Array:
        """Read tokens: (B, T), B sequences of any lengths, or one sequence when there is one stream.

        Returns the outputs (B, V) after each stream's last. Raises `InputError`.
        """
        self._settle()
        rows = self._rows(tokens)
        lengths = np.array([len(row) for row in rows])
        ids = np.zeros((lengths.max(), self.batch), np.uint32)
        for stream, row in enumerate(rows):
            ids[: len(row), stream] = row
        for _ in self._read("tokens", self.model.inputs["ids"], ids, lengths):
            pass
        return self.outputs

    def step(self, tokens: Sequence[int] | Array) -> Array:
        """Read one token a stream, (B). Returns the outputs (B, V). Raises `InputError`."""
        ids = numbers("step: tokens", tokens, "iu")
        if ids.shape != (self.batch,):
            raise InputError(mismatch("step: tokens", (self.batch,), ids.shape))
        return self.prefill(ids[:, None])

    def read_image(self, image: Array) -> Array:
        """Read an image as a prefix, patch by patch: (rows, columns, channels) pixels for every stream, or (B, ...).

        Numbers are taken as they are, unsigned integers of 8 bits as fractions of 255. Returns the outputs (B, V) after
        the last patch. Raises `InputError`.
        """
        self._settle()
        inputs, read = self.model.inputs, self.model.config.stack.patches
        if read is None:
            raise InputError(mismatch("image", "a model that reads patches", self._kinds()))
        self._steps.write(inputs["patches"], cut(image, read, self.batch))
        positions = np.repeat(np.arange(read.count, dtype=np.uint32)[:, None], self.batch, axis=1)
        for _ in self._read("patches", inputs["position"], positions, np.full(self.batch, read.count)):
            pass
        return self.outputs

    def read_features(self, features: Array) -> Array:
        """Read vectors (B, T, F), or (T, F) when there is one stream. Returns the outputs (B, T, V) of every step."""
        self._settle()
        read = self.model.config.stack.features
        if read is None:
            raise InputError(mismatch("features", "a model that reads features", self._kinds()))
        given = float32("features", features)
        given = given[None] if given.ndim == 2 and self.batch == 1 else given
        if given.ndim != 3 or given.shape[0] != self.batch or given.shape[2] != read.size:
            raise InputError(mismatch("features", f"({self.batch}, T, {read.size})", given.shape))
        steps, lengths = given.swapaxes(0, 1), np.full(self.batch, given.shape[1])
        outputs = list(self._read("features", self.model.inputs["features"], steps, lengths))
        return np.stack(outputs, axis=1) if outputs else np.zeros((self.batch, 0, self.model.width), np.float32)

    def generate(self, count: int, *, temperature: float = 0.0, top_k: int = 0, seed: int = 0) -> Array:
        """Draw and read `count` tokens: (B, count) uint32. See `tokens`."""
        drawn = list(self._tokens(count, temperature, top_k, seed, all_taken=True))
        return np.stack(drawn, axis=1) if drawn else np.zeros((self.batch, 0), np.uint32)

    def tokens(self, count: int, *, temperature: float = 0.0, top_k: int = 0, seed: int = 0) -> Iterator[Array]:
        """Draw `count` tokens a stream one by one, (B) uint32 each, and read each as it comes.

        With the schedule `unrolled` the device is ahead by up to two submissions of many tokens: what it has drawn has
        been read by the streams, and a generator that is left leaves them there. With the others a stream has read
        what was given.

        Greedy with temperature 0, else among the `top_k` most likely (0: all). A stream's tokens follow from seed, its
        number in the batch and how many it drew before. Raises `InputError`.
        """
        return self._tokens(count, temperature, top_k, seed)

    def _tokens(
        self, count: int, temperature: float, top_k: int, seed: int, *, all_taken: bool = False
    ) -> Iterator[Array]:
        """`all_taken` when whoever asks takes all of them: then the device may be ahead."""
        logits, flights = self.model.logits, self._flights
        if logits is None or flights is None:
            raise InputError(mismatch("generate", "a model that reads and gives tokens", self._kinds()))
        self._check_begun()
        sampling = self._sampling(temperature, top_k, seed)
        return self._drawn(flights, logits, whole("count", count), sampling, all_taken)

    def _drawn(
        self, flights: Flights, logits: Tensor, count: int, sampling: Mapping[Tensor, Array], all_taken: bool
    ) -> Iterator[Array]:
        """Tokens as they land; begun again when the session was used otherwise meanwhile."""
        left, seen = count, -1
        flight: Flight | None = None
        while left or flight is not None:
            if flight is None:
                if self._changes != seen:
                    self._begin(logits, sampling)
                flight = self._launch(flights, left)
                left, seen = left - flight.count, self._changes
            behind: Flight | None = None
            if left and self._changes == seen and self._ahead(all_taken):
                behind = self._launch(flights, left)
                left, seen = left - behind.count, self._changes
            self._land(flights, flight)
            for at in range(flight.count):
                yield flight.tokens[:, at]
            flight = behind

    def _begin(self, logits: Tensor, sampling: Mapping[Tensor, Array]) -> None:
        """Write what generation goes on from."""
        self._settle()
        self._check_begun()
        for tensor, array in {**sampling, logits: self._outputs}.items():
            self._steps.write(tensor, array)
        self._write_mode(np.full(self.batch, STEP, np.uint32))

    def _ahead(self, all_taken: bool) -> bool:
        """Whether steps are launched before those before them have been looked at: never where each is told of."""
        if self._telemetry is not None:
            return False
        return self._steps.chunk(GRAPH) > 1 or (all_taken and self._steps.overlaps(GRAPH))

    def _launch(self, flights: Flights, left: int) -> Flight:
        self._changes += 1
        return flights.launch(1 if self._telemetry is not None else min(left, self._steps.chunk(GRAPH)))

    def _land(self, flights: Flights, flight: Flight) -> None:
        if flights.land(flight) and flights.last is None:
            self._outputs = self._steps.read(self.model.outputs[GRAPH])
            self._tell(GRAPH)

    def _settle(self) -> None:
        """End what has been launched, before anything else is asked of the device."""
        if self._reading:
            self._steps.check_usable()
            remedy = "reset all streams, or load a state"
            raise DeviceError(mismatch("session", f"{self._reading} that were read whole", "some cut short", remedy))
        if self._flights is not None and self._flights.last is not None:
            self._land(self._flights, self._flights.last)

    def _tell(self, graph: str) -> None:
        if self._telemetry is not None and self._on_step is not None:
            self._on_step(self._telemetry.record(self._steps, graph))

    def _check_begun(self) -> None:
        if self._fresh.any():
            stream = int(np.argmax(self._fresh))
            raise InputError(mismatch(f"generate: stream {stream}", "a prefix to go on from", "none", "see prefill"))

    def _sampling(self, temperature: float, top_k: int, seed: int) -> Mapping[Tensor, Array]:
        # Beyond these, logits divided by it may leave float32.
        if temperature != 0 and not 1e-4 <= temperature <= 1e4:
            raise InputError(mismatch("temperature", "0, or 0.0001 to 10000", temperature))
        if not 0 <= whole("top_k", top_k) <= self.model.width:
            raise InputError(mismatch("top_k", f"0 to {self.model.width}", top_k))
        if not 0 <= whole("seed", seed) < 1 << 32:
            raise InputError(mismatch("seed", "0 to 4294967295", seed))
        values = {
            "seed": np.full(self.batch, seed, np.uint32),
            "stream": np.arange(self.batch, dtype=np.uint32),
            "temperature": np.full(self.batch, temperature, np.float32),
            "top_k": np.full(self.batch, top_k, np.uint32),
        }
        return {self.model.inputs[name]: array for name, array in values.items()}

    def reset(self, streams: int | Sequence[int] | None = None) -> None:
        """Begin these streams, or all, anew: their next step starts from nothing. Raises `InputError`."""
        if streams is None:
            self._reading = ""
        self._settle()
        chosen = np.arange(self.batch) if streams is None else np.atleast_1d(numbers("reset", streams, "iu"))
        if chosen.ndim != 1 or ((chosen < 0) | (chosen >= self.batch)).any():
            raise InputError(mismatch("reset", f"streams 0 to {self.batch - 1}", chosen.tolist()))
        gone = np.isin(np.arange(self.batch), chosen)
        self._fresh |= gone
        self._changes += 1
        self._clear(gone)

    def save_state(self, path: str | Path) -> None:
        """Write all streams' state to a safetensors file. Raises `InputError`."""
        self._settle()
        kept = {name: self._steps.read_state(tensor) for name, tensor in self.model.shared.kept.items()}
        states.save(Path(path), self._stored.identity, kept, self._outputs, self._fresh)

    def load_state(self, path: str | Path) -> None:
        """Go on from a file of `save_state` of the same model and batch. Raises `InputError`."""
        kept, limits = self.model.shared.kept, self.model.limits
        saved = states.read(Path(path), self._stored.identity, kept, self._outputs.shape, self._dtype, limits)
        self._reading = ""
        self._settle()
        for name, tensor in kept.items():
            self._steps.write(tensor, saved.kept[name])
        self._outputs, self._fresh = saved.outputs, saved.fresh
        if self._flights is not None:
            self._flights.drawn = saved.kept["drawn"].astype(np.int64)
        self._changes += 1

    def close(self) -> None:
        if self._flights is not None:
            self._flights.forget()
        self._steps.close()

    def _kinds(self) -> str:
        return f"one with the graphs {', '.join(self.model.graphs)}"

    def _rows(self, tokens: Tokens) -> list[list[int]]:
        """Token ids by stream, each checked."""
        read = self.model.config.stack.input
        if read is None:
            raise InputError(mismatch("tokens", "a model that reads tokens", self._kinds()))
        if isinstance(tokens, (str, bytes)) or not isinstance(tokens, (Sequence, np.ndarray)):
            raise InputError(mismatch("tokens", f"{self.batch} sequences of ids", type(tokens).__name__))
        if isinstance(tokens, np.ndarray) and tokens.ndim == 0:
            raise InputError(mismatch("tokens", f"{self.batch} sequences of ids", "one number"))
        given = list(tokens)
        # A list may hold rows of other lengths, which NumPy refuses to measure.
        if self.batch == 1 and not any(isinstance(token, Sequence) or np.ndim(token) for token in given):
            given = [given]
        rows = [numbers("tokens", row, "iu") for row in given]
        if len(rows) != self.batch or any(row.ndim != 1 for row in rows):
            shapes = ", ".join(map(str, dict.fromkeys(row.shape for row in rows))) or "none"
            raise InputError(mismatch("tokens", f"{self.batch} sequences of ids", f"{len(rows)} of shape {shapes}"))
        for row in rows:
            check_ids("tokens", row, read.count)
        return [row.tolist() for row in rows]

    def _read(self, kind: str, tensor: Tensor, x: Array, lengths: Array) -> Iterator[Array]:
        """Read x (T, B, ...), of which each stream reads the first `lengths` (B) steps; gives outputs (B, V).

        Those of features after each step, others' in pieces after each piece.
        """
        self._reading = kind
        yield from self._read_each(kind, tensor, x, lengths)
        self._reading = ""

    def _read_each(self, kind: str, tensor: Tensor, x: Array, lengths: Array) -> Iterator[Array]:
        chunks = self._chunks if in_pieces(len(x), self.batch) else None
        if chunks is None:
            for t, now in enumerate(x):
                self._steps.write(tensor, np.ascontiguousarray(now))
                self._advance(kind, lengths > t)
                yield self._outputs
            return
        for at, count in chunks.cut(kind, len(x), self.batch):
            live = lengths > at
            self._begin_step(live)
            (y,) = chunks.read(kind, [x], lengths, at, count)
            each = y.reshape(count, *self._outputs.shape)[: len(x) - at] if kind == "features" else y[None]
            for output in each:
                self._end_step(live, output)
                yield self._outputs

    def _advance(self, graph: str, live: NDArray[np.bool_]) -> None:
        """A step of the live streams; the others keep their states and outputs."""
        self._begin_step(live)
        self._steps.step(graph)
        self._end_step(live, self._steps.read(self.model.outputs[graph]))
        self._tell(graph)

    def _begin_step(self, live: NDArray[np.bool_]) -> None:
        self._write_mode(np.where(live, np.where(self._fresh, RESTART, STEP), HOLD).astype(np.uint32))

    def _end_step(self, live: NDArray[np.bool_], output: Array) -> None:
        self._outputs = np.where(live[:, None], output, self._outputs)
        self._fresh &= ~live
        self._changes += 1

    def _write_mode(self, mode: Array) -> None:
        if not np.array_equal(mode, self._mode):
            # Until it is written it is not known what is there.
            self._mode = np.zeros(0, np.uint32)
            self._steps.write(self.model.mode, mode)
            self._mode = mode

    def _clear(self, streams: NDArray[np.bool_]) -> None:
        """What the host, and not a step's mode, takes back to its start: outputs, and how many tokens were drawn."""
        self._outputs = np.where(streams[:, None], 0, self._outputs)
        if self._flights is not None:
            self._flights.drawn = np.where(streams, 0, self._flights.drawn)
        for name in ("token", "drawn", "history"):
            if name in self.model.shared.kept:
                tensor = self.model.shared.kept[name]
                before = np.zeros(tensor.shape, np.uint32) if streams.all() else self._steps.read_state(tensor)
                gone = streams.reshape(-1, *[1] * (before.ndim - 1))
                self._steps.write(tensor, np.where(gone, 0, before).astype(np.uint32))
