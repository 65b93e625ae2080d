"""`vkcat run` of an encoder-decoder: words in, symbols out."""

from __future__ import annotations

import json
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import click

from vkcat.config import TransducerConfig
from vkcat.errors import InputError, mismatch
from vkcat.model import build_transducer
from vkcat.runner import Runner
from vkcat.stored import StoredModel
from vkcat.transducer import Transducer

BATCH = 16
LONG_INPUT = 64


def transduce(model: StoredModel, words: tuple[str, ...], runner: Runner, as_json: bool) -> None:
    """Print word<TAB>output for each word, or for each line of standard input as it comes."""
    with closing(_Sessions(model, runner)) as sessions:
        # A mistake in the last argument must not be found after the first has been printed.
        for word in words:
            sessions.get(1).encode_text(word)
        batches = _batches_of(words) if words else _batches_of_lines()
        with _progress(len(words)) as advance:
            for batch in batches:
                _print(batch, sessions, as_json)
                advance(len(batch))


class _Sessions:
    """One session for single words and one for many at a time, each made when first needed."""

    def __init__(self, model: StoredModel, runner: Runner) -> None:
        self._model, self._runner = model, runner
        self._made: dict[int, Transducer] = {}
        self.get(1)

    def get(self, count: int) -> Transducer:
        batch = 1 if count == 1 else BATCH
        if batch not in self._made:
            config = self._model.config
            assert isinstance(config, TransducerConfig)
            self._made[batch] = Transducer(build_transducer(config, batch), self._model.weights, self._runner)
        return self._made[batch]

    def close(self) -> None:
        for session in self._made.values():
            session.close()


def _print(batch: list[tuple[str, str]], sessions: _Sessions, as_json: bool) -> None:
    """Run and print a batch. What comes before a mistake is printed; then the mistake is raised with its place."""
    good: list[str] = []
    mistake: InputError | None = None
    for place, word in batch:
        try:
            sessions.get(1).encode_text(word)
            good.append(word)
        except InputError as error:
            mistake = InputError(f"{place}{error}")
            break
    for word, symbols in zip(good, sessions.get(len(good)).transduce(good) if good else [], strict=True):
        shown = {"input": word, "output": symbols}
        click.echo(json.dumps(shown, ensure_ascii=False) if as_json else f"{word}\t{' '.join(symbols)}")
    if mistake is not None:
        raise mistake


def _batches_of(words: tuple[str, ...]) -> Iterator[list[tuple[str, str]]]:
    for at in range(0, len(words), BATCH):
        yield [("", word) for word in words[at : at + BATCH]]


def _batches_of_lines() -> Iterator[list[tuple[str, str]]]:
    """Lines of standard input: as many as are waiting, so that one typed word is answered at once."""
    if sys.stdin is None:
        raise InputError(mismatch("standard input", "words, one a line", "a closed one", "or give words as arguments"))
    lines: queue.Queue[tuple[str, str] | None] = queue.Queue(maxsize=4 * BATCH)
    mistakes: list[OSError] = []

    def read() -> None:
        try:
            read_all()
        except OSError as error:
            mistakes.append(error)
        finally:
            lines.put(None)

    def read_all() -> None:
        for number, line in enumerate(_raw_lines(), 1):
            # What is not UTF-8 becomes a character no model knows.
            lines.put((f"line {number}: ", line.decode("utf-8", "replace").rstrip("\r")))

    threading.Thread(target=read, daemon=True).start()
    ended = False
    while not ended:
        batch: list[tuple[str, str]] = []
        line = lines.get()
        while line is not None:
            batch.append(line)
            if len(batch) == BATCH or lines.empty():
                break
            line = lines.get()
        ended = line is None
        if batch:
            yield batch
    if mistakes:
        raise InputError(mismatch("standard input", "one that can be read", mistakes[0].strerror)) from mistakes[0]


def _raw_lines() -> Iterator[bytes]:
    """Lines of standard input as they arrive.

    Read below Python's buffer: a thread that waits inside the buffer holds its lock, and leaving with it held aborts.
    """
    stream = getattr(sys.stdin.buffer, "raw", sys.stdin.buffer)
    rest = b""
    while piece := stream.read(1 << 16):
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, when that is a terminal and the input is long or of unknown length."""
    if not sys.stderr.isatty() or not (total > LONG_INPUT or (total == 0 and not sys.stdin.isatty())):
        yield lambda count: None
        return
    # A word is answered sooner than these are imported.
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("words"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=sys.stdout.isatty(),
    ) as progress:
        task = progress.add_task("words", total=total or None)
        yield lambda count: progress.advance(task, count)
