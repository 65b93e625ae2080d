"""`vkcat doctor`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import click
import msgspec

from vkcat.cli import options
from vkcat.cli.devices import properties
from vkcat.cli.files import write_json
from vkcat.cli.progress import progress
from vkcat.device import vulkan
from vkcat.device.backends import open_device
from vkcat.device.interface import DeviceInfo
from vkcat.device.layers import active_layers
from vkcat.doctor import Check, check_device, checks_of, surroundings
from vkcat.doctor.private import without_names
from vkcat.errors import DeviceError


@click.command()
@options.device
@options.backend
@options.json_file
def doctor(device: str | None, backend: str, json_path: Path | None) -> None:
    """Show one page for a bug report: system, packages, drivers, devices, and whether a device does what is needed.

    Memory, timestamps and each op at small sizes are tried on the device that would be used. No user's name or home
    folder is shown. Exits 1 when something is wrong.
    """
    options.check_results(json_path)
    around = surroundings()
    for title, rows in msgspec.to_builtins(around).items():
        _section(title, rows)
    infos, trouble = _devices()
    for info in infos:
        _section(f"device {info.index}: {info.name}", properties(info))
    checks: list[Check] = []
    name = ""
    if not trouble:
        try:
            with closing(open_device(backend, device)) as opened:
                name = f"{opened.info.index}: {opened.info.name}, by {opened.backend}"
                # Known only once there is an instance.
                _section("layers", dict.fromkeys(active_layers(), "active") or {"none": "active"})
                with progress("checks", len(checks_of(opened))) as advance:
                    for check in check_device(opened):
                        checks.append(check)
                        advance(1)
        except DeviceError as error:
            trouble = without_names(str(error))
    problems = [check for check in checks if check.problem]
    _section(f"checks of device {name}" if name else "checks", dict(_told(checks)))
    if trouble:
        click.echo(f"\n{trouble}")
    if json_path:
        write_json(json_path, _as_json(msgspec.to_builtins(around), infos, name, checks, trouble))
    click.echo(f"\n{len(checks)} checks, {len(problems)} with a problem")
    if problems or trouble:
        sys.exit(1)


def _devices() -> tuple[list[DeviceInfo], str]:
    """All devices, or why there are none: that, too, belongs on the page."""
    try:
        return vulkan.devices(), ""
    except DeviceError as error:
        return [], without_names(str(error))


def _section(title: str, rows: Mapping[str, str]) -> None:
    click.echo(f"\n## {title}\n")
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        click.echo(f"    {name:<{width}}  {value}".rstrip())


def _told(checks: list[Check]) -> Iterator[tuple[str, str]]:
    """Each check that is not of an op, and of the ops those with a problem."""
    ops = [check for check in checks if check.name.startswith("op ")]
    for check in checks:
        if check.problem or check not in ops:
            problem = f"PROBLEM: {without_names(check.problem)}" if check.problem else "ok"
            yield check.name, f"{problem}  {check.found}".rstrip()
    if ops:
        yield "ops", f"{sum(not check.problem for check in ops)} of {len(ops)} ok"


def _as_json(
    around: dict[str, Any], infos: list[DeviceInfo], name: str, checks: list[Check], trouble: str
) -> dict[str, Any]:
    return {
        **around,
        "devices": [msgspec.to_builtins(info) for info in infos],
        "layers": active_layers(),
        "checked": name,
        "checks": [{**msgspec.to_builtins(check), "problem": without_names(check.problem)} for check in checks],
        "trouble": trouble,
    }
