"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import click

from vkcat.device.backends import BACKENDS
from vkcat.files import check_writable
from vkcat.schedules import SCHEDULES, SUBMIT_LIMIT_MS

device = click.option(
    "--device",
    metavar="INDEX|NAME",
    help="Without it the first discrete, integrated, virtual, CPU device.",
)
backend = click.option(
    "--backend", type=click.Choice(list(BACKENDS)), default="vulkan", show_default=True, help="How Vulkan is driven."
)
schedule = click.option(
    "--schedule",
    type=click.Choice(SCHEDULES),
    default="replay",
    show_default=True,
    help="How dispatches are submitted.",
)
fuse = click.option("--fuse/--no-fuse", default=True, show_default=True, help="Join ops that one dispatch can do.")
submit_limit = click.option(
    "--submit-limit",
    "submit_limit_ms",
    type=click.FloatRange(0, min_open=True),
    default=SUBMIT_LIMIT_MS,
    show_default=True,
    metavar="MS",
    help="Longest submission of many steps.",
)
model = click.argument("model", type=click.Path(path_type=Path, file_okay=False))
json_file = click.option(
    "--json", "json_path", type=click.Path(path_type=Path, dir_okay=False), help="Write the result to a file as JSON."
)


def choices(value: str, allowed: tuple[str, ...], option: str) -> list[str]:
    """A comma-separated list of known names, each once."""
    names = list(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
    unknown = [name for name in names if name not in allowed]
    if unknown or not names:
        raise click.BadParameter(f"expected some of {', '.join(allowed)}, got {value!r}", param_hint=option)
    return names


def check_results(*paths: Path | None) -> None:
    """Raises `InputError` when there can be no file at one of them: before the work, not after it."""
    for path in paths:
        if path is not None:
            check_writable(path)
