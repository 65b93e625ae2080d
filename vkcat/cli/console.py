"""The console that commands print tables on."""

from __future__ import annotations

import sys

from rich.console import Console


def console() -> Console:
    """Standard output: as wide as the terminal, or wide enough for every table when it is not one."""
    return Console(width=None if sys.stdout.isatty() else 160, highlight=False, markup=False)
