"""One contender in a process of its own: `python -m benchmarks.worker`, driven by lines of JSON.

The first line says what to open; each further line asks for one thing and is answered by one line:

| `do` | answer |
|---|---|
| `check` | `tokens` (B, count) and `logits` (B, V) after `count` steps |
| `time` | `ns` of `count` steps, tokens on the host |
| `device` | `ns` of a step by the device's clock, or null |

What a user can mend (no device, a refused shader) is answered by `refused`. The end of the input ends the process.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter_ns
from typing import Any, TextIO

from benchmarks.contender import Contender, Settings
from benchmarks.scene import Scene
from vkcat.errors import VkcatError


def _private_stdout() -> TextIO:
    """The pipe to whoever asks. What libraries print goes to standard error instead."""
    kept = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return kept


def _opened(wanted: Mapping[str, Any]) -> Contender:
    scene = Scene(wanted["model"], wanted["batch"], Path(wanted["folder"]))
    settings = Settings(wanted["device"], wanted["threads"])
    module = importlib.import_module(f"benchmarks.{wanted['module']}")
    opened: Contender = module.open_contender(scene, settings, **wanted["options"])
    return opened


def _answer(contender: Contender, do: str, count: int) -> dict[str, Any]:
    if do == "check":
        tokens = contender.generate(count)
        return {"tokens": tokens.tolist(), "logits": contender.logits().tolist()}
    if do == "time":
        begin = perf_counter_ns()
        contender.generate(count)
        return {"ns": perf_counter_ns() - begin}
    return {"ns": contender.device_ns(count)}


def main() -> None:
    answers = _private_stdout()

    def say(answer: Mapping[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        contender = _opened(json.loads(sys.stdin.readline()))
    except VkcatError as error:
        say({"refused": str(error)})
        return
    say({"versions": dict(contender.versions), "notes": contender.notes})
    for line in sys.stdin:
        request = json.loads(line)
        say(_answer(contender, request["do"], request["count"]))
    contender.close()


if __name__ == "__main__":
    main()
