"""Whether reading a file did what it may: succeed, or raise a `VkcatError`, in its time, memory and folder."""

from __future__ import annotations

import sys
import time
import tracemalloc
import warnings
from pathlib import Path

from fuzzing.readers import Reader
from vkcat.errors import VkcatError, VkcatWarning

MOST_LINE = 20_000


class FindingError(Exception):
    """What should not have happened."""


class _Watch:
    """Of Python's own events while a reader is at work: files elsewhere that are opened, and pickles."""

    def __init__(self) -> None:
        self.folder: Path | None = None
        self.seen: list[str] = []
        self._known = tuple({str(Path(entry or ".").resolve()) for entry in (*sys.path, sys.prefix, sys.base_prefix)})

    def start(self, folder: Path) -> None:
        self.seen.clear()
        self.folder = folder.resolve()

    def stop(self) -> None:
        self.folder = None

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.folder is None or event not in ("open", "pickle.find_class"):
            return
        if event == "open" and isinstance(arguments[0], (str, bytes)):
            path = arguments[0] if isinstance(arguments[0], str) else arguments[0].decode(errors="replace")
            # Modules that are imported late, and temporary folders of the compiler's.
            if not path.startswith((*self._known, str(self.folder), "/tmp/tmp", "/dev/null", "/usr/lib")):
                self.seen.append(f"{event} {path}")
        elif event != "open":
            self.seen.append(event)


_WATCH: list[_Watch] = []


def _watch() -> _Watch:
    """One for the process: a hook cannot be taken away."""
    if not _WATCH:
        _WATCH.append(_Watch())
        sys.addaudithook(_WATCH[0])
    return _WATCH[0]


def judge(reader: Reader, data: bytes, folder: Path) -> VkcatError | None:
    """Write the file and read it: what it was refused with, or None. Raises `FindingError`."""
    (folder / reader.file).write_bytes(data)
    watch = _watch()
    tracing = tracemalloc.is_tracing()
    if not tracing:
        tracemalloc.start()
    tracemalloc.reset_peak()
    before, begin = tracemalloc.get_traced_memory()[0], time.monotonic()
    watch.start(folder)
    try:
        refused = _outcome(reader, folder)
    finally:
        watch.stop()
        spent, peak = time.monotonic() - begin, tracemalloc.get_traced_memory()[1] - before
        if not tracing:
            tracemalloc.stop()
    if watch.seen:
        raise FindingError(f"{reader.name}: {watch.seen[0]}")
    if spent > reader.seconds:
        raise FindingError(f"{reader.name}: {spent:.1f} s for {len(data)} bytes, more than {reader.seconds:g}")
    if peak > reader.most_bytes(len(data)):
        raise FindingError(f"{reader.name}: {peak} bytes for {len(data)}, more than {reader.most_bytes(len(data))}")
    return refused


def _outcome(reader: Reader, folder: Path) -> VkcatError | None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", VkcatWarning)
        try:
            reader.read(folder)
        except VkcatError as error:
            if not str(error) or len(str(error)) > MOST_LINE:
                raise FindingError(f"{reader.name}: a message of {len(str(error))} characters") from error
            return error
        except Exception as error:
            raise FindingError(f"{reader.name}: {type(error).__name__}: {str(error)[:300]}") from error
    return None
