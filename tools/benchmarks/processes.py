"""Contenders as processes: which environment has what each needs, and asking one for something."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.contender import Entry, Settings
from benchmarks.scene import Scene

TOOLS = Path(__file__).resolve().parent.parent
ROOT = TOOLS.parent
BENCH_PYTHON = ROOT / ".venv-bench" / "bin" / "python"

OWN_NEEDS = ("numpy", "vulkan", "safetensors", "msgspec")
"""What vkcat itself needs, in any environment."""

PATIENCE_S = 300

_PROBE = "import importlib.util as u, sys; print(*[n for n in sys.argv[1:] if u.find_spec(n)])"


class ContenderError(Exception):
    """A contender that cannot be measured, and why. `mendable` says that nothing is broken: something is not there."""

    def __init__(self, reason: str, *, mendable: bool) -> None:
        super().__init__(reason)
        self.mendable = mendable


@dataclass(frozen=True)
class Environments:
    """Pythons, with what each can import of what contenders need."""

    found: Mapping[str, frozenset[str]]

    @staticmethod
    def of(pythons: Iterable[Path | str], entries: Iterable[Entry]) -> Environments:
        names = sorted({*OWN_NEEDS, *(name for entry in entries for name in entry.needs)})
        found = {}
        for python in map(str, pythons):
            done = subprocess.run([python, "-c", _PROBE, *names], capture_output=True, text=True, check=True)
            found[python] = frozenset(done.stdout.split())
        return Environments(found)

    def python_for(self, entry: Entry) -> str:
        """Raises `ContenderError`."""
        for python, names in self.found.items():
            if names.issuperset((*OWN_NEEDS, *entry.needs)):
                return python
        missing = [n for n in (*OWN_NEEDS, *entry.needs) if not any(n in names for names in self.found.values())]
        lacking = f"no package {', '.join(missing)}" if missing else "no environment has all of its packages"
        remedy = "docs/backends.md" if "kp" in missing else "tools/setup --bench"
        raise ContenderError(f"{lacking}; see {remedy}", mendable=True)


def default_pythons() -> list[Path | str]:
    """This one, and that of `tools/setup --bench` when it is there."""
    return [sys.executable, *([BENCH_PYTHON] if BENCH_PYTHON.is_file() else [])]


class Worker:
    """A running contender. Several may be starting at once: `ready` waits for one. Raises `ContenderError`."""

    def __init__(self, entry: Entry, python: str, scene: Scene, settings: Settings) -> None:
        self.entry = entry
        self.versions: dict[str, str] = {}
        self.notes: list[str] = []
        self._log = scene.folder / f"{entry.name}.log"
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [python, "-m", "benchmarks.worker"],
                env=_environment(settings),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # An interrupt is for the one who asks: it ends the processes itself.
                start_new_session=True,
            )
        self._send(
            {
                "module": entry.module,
                "options": dict(entry.options),
                "model": scene.model,
                "batch": scene.batch,
                "folder": str(scene.folder),
                "device": settings.device,
                "threads": settings.threads,
            }
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def ready(self) -> None:
        answer = self._receive()
        if "refused" in answer:
            raise ContenderError(answer["refused"], mendable=True)
        self.versions, self.notes = answer["versions"], answer["notes"]

    def ask(self, do: str, count: int) -> dict[str, Any]:
        self._send({"do": do, "count": count})
        return self._receive()

    def _send(self, request: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failed("ended") from None

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], PATIENCE_S)[0]:
            raise self._failed(f"gave no answer in {PATIENCE_S} s")
        line = self._process.stdout.readline()
        if not line:
            raise self._failed("ended")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _failed(self, how: str) -> ContenderError:
        said = self._log.read_text(errors="replace").strip().splitlines()
        return ContenderError(f"its process {how}: {said[-1] if said else 'without a word'}", mendable=False)

    def close(self) -> None:
        """Let it end by itself; one that does not is killed."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.close()
            self._process.wait(timeout=10)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def close_all(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.close()


def _environment(settings: Settings) -> dict[str, str]:
    """Every library gets the same number of threads: lavapipe and OpenMP are told so here, the others by their API."""
    paths = [str(ROOT), str(TOOLS), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "LP_NUM_THREADS": str(settings.threads),
        "OMP_NUM_THREADS": str(settings.library_threads),
    }
