"""A reader under atheris: libFuzzer chooses by what of vkcat's code a file reaches, and damages by the reader's format.

One process works for some minutes and starts again with the files that were kept, until the processor time is spent.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from random import Random

ROOT = Path(__file__).parent.parent.parent
TOOL = ROOT / "tools" / "fuzz"
CORPUS = ROOT / "tests" / "corpus"
FOUND = ROOT / ".cache" / "fuzz"
SPELL_S, TIMEOUT_S, MOST_MEGABYTES, MOST_BYTES = 120, 75, 2048, 1 << 16


def run(name: str, minutes: float, seed: int) -> int:
    """Processor minutes of one reader; 0 when nothing was found. The file of a finding is left in .cache/fuzz/."""
    from fuzzing.readers import READERS

    FOUND.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(READERS[name].seeds()):
            (Path(folder) / f"seed-{number}").write_bytes(data)
        while (spent := _children_s()) < 60 * minutes:
            left = min(SPELL_S, 60 * minutes - spent)
            done = subprocess.run(_command(name, folder, max(int(left), 1), seed), check=False)
            if done.returncode != 0:
                print(f"fuzz: {name}: found something after {_children_s() / 60:.1f} minutes; see {FOUND}")
                return 1
            seed += 1
        kept = len(list(Path(folder).iterdir()))
    print(f"fuzz: {name}: nothing found in {_children_s() / 60:.1f} minutes of processor time; {kept} files reach it")
    return 0


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _command(name: str, corpus: str, seconds: int, seed: int) -> list[str]:
    kept = CORPUS / name
    options = {
        "max_total_time": seconds,
        "seed": seed + 1,
        "timeout": TIMEOUT_S,
        "rss_limit_mb": MOST_MEGABYTES,
        "max_len": MOST_BYTES,
        "artifact_prefix": f"{FOUND}/{name}-",
        "print_final_stats": 1,
        "verbosity": 0,
    }
    flags = [f"-{key}={value}" for key, value in options.items()]
    return [sys.executable, str(TOOL), "--child", name, *flags, corpus, *([str(kept)] if kept.is_dir() else [])]


def child(name: str, arguments: list[str]) -> None:
    """libFuzzer's own process; it does not return."""
    import atheris

    with atheris.instrument_imports(include=["vkcat"], enable_loader_override=False):
        from fuzzing.judge import judge
        from fuzzing.readers import READERS
    reader = READERS[name]
    tracemalloc.start()
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    # What is imported late is not a file's doing.
    for data in reader.seeds():
        judge(reader, data, folder)

    def damaged(data: bytes, most: int, seed: int) -> bytes:
        rng = Random(seed)
        made = atheris.Mutate(data, most) if rng.random() < 0.2 else reader.damaged(bytes(data), rng)
        return bytes(made[:most])

    atheris.Setup(
        [str(TOOL), *arguments], lambda data: _judged(judge, reader, bytes(data), folder), custom_mutator=damaged
    )
    atheris.Fuzz()


def _judged(judge: object, reader: object, data: bytes, folder: Path) -> None:
    judge(reader, data, folder)  # type: ignore[operator]
