"""A bug report is for strangers: no user's name and no home folder in it."""

from __future__ import annotations

import getpass
import os
import re
from contextlib import suppress
from pathlib import Path

SHORTEST_NAME = 3
"""Shorter names stand inside other words."""


def without_names(text: str) -> str:
    """`text` with the home folder as ~ and the user's name as USER."""
    for folder in _homes():
        text = text.replace(folder, "~")
    for name in _names():
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "USER", text)
    return text


def _homes() -> list[str]:
    """The home folder in all its spellings, the longest first."""
    found = {os.path.expanduser("~"), os.environ.get("HOME", ""), os.environ.get("USERPROFILE", "")}
    found |= {os.path.realpath(home) for home in found if home}
    # A home of "/" has nothing to tell, and would be found everywhere.
    return sorted((home for home in found if len(Path(home).parts) > 1), key=len, reverse=True)


def _names() -> list[str]:
    found = {os.environ.get(name, "") for name in ("USER", "LOGNAME", "USERNAME")}
    # A number without an entry among the system's users has no name.
    with suppress(KeyError, OSError, ImportError):
        found.add(getpass.getuser())
    # The administrator's is on every machine, and tells of nobody.
    return sorted(name for name in found if len(name) >= SHORTEST_NAME and name != "root")
