"""How tables of a profile look."""

from __future__ import annotations

from rich import box
from rich.table import Table

from vkcat.profile.spread import Spread


def titled(*columns: str, title: str) -> Table:
    return Table(*columns, title=title, title_justify="left", box=box.SIMPLE_HEAD)


def cell(spread: Spread | None) -> str:
    return "-" if spread is None else str(spread)
