"""`vkcat profile --compare`."""

from __future__ import annotations

from pathlib import Path

from vkcat.cli.console import console
from vkcat.cli.files import write_json
from vkcat.profile import compare, samples


def compare_profiles(a: str, b: str, json_path: Path | None) -> None:
    """Print what changed from A to B. Raises `InputError` when one is no profile."""
    comparison = compare.compare(samples.read(a), samples.read(b))
    out = console()
    for line in compare.lines(comparison):
        out.print(line)
    out.print(compare.table(comparison))
    out.print(compare.NOTE)
    if json_path:
        write_json(json_path, compare.as_json(comparison))
