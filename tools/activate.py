"""Start a tool again with the Python of .venv, when the one it was started with has no vkcat: imported first."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

PYTHON = Path(__file__).resolve().parent.parent / ".venv" / "bin" / "python"

if find_spec("vkcat") is None:
    tool = Path(sys.argv[0]).name
    # Not resolved: an environment's Python is a link to the one it was made with.
    if not PYTHON.is_file() or Path(sys.prefix) == PYTHON.parent.parent:
        print(f"{tool}: error: expected vkcat in .venv, got none; tools/setup", file=sys.stderr)
        sys.exit(2)
    os.execv(PYTHON, [str(PYTHON), *sys.argv])
