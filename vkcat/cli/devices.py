"""`vkcat devices`."""

from __future__ import annotations

import json

import click
import msgspec
from rich import box
from rich.table import Table

from vkcat.cli.console import console
from vkcat.device import vulkan
from vkcat.device.interface import DeviceInfo
from vkcat.device.layers import active_layers
from vkcat.device.select import select, unusable


@click.command()
@click.option("--device", metavar="INDEX|NAME", help="Show what this choice would use.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def devices(device: str | None, as_json: bool) -> None:
    """Show every Vulkan device, and which one would be used and why."""
    infos = vulkan.devices()
    chosen, reason = select(infos, device)
    layers = active_layers()
    if as_json:
        listed = [msgspec.to_builtins(info) | {"unusable": unusable(info)} for info in infos]
        click.echo(json.dumps({"devices": listed, "used": chosen.index, "reason": reason, "layers": layers}, indent=1))
        return
    out = console()
    for info in infos:
        out.print(_table(info))
    out.print(f"used: {chosen.index}, {chosen.name}: {reason}")
    out.print(f"layers: {', '.join(layers) or 'none active'}")


def properties(info: DeviceInfo) -> dict[str, str]:
    """What is to be said of a device, by name."""
    limits = info.limits
    timestamps = f"{info.timestamp_bits} bits, {info.timestamp_period:g} ns a tick" if info.timestamp_bits else "none"
    return {
        "type": info.kind + (f" (unusable: {unusable(info)})" if unusable(info) else ""),
        "driver": info.driver,
        "Vulkan": ".".join(map(str, info.api_version)),
        "subgroup size": str(info.subgroup_size),
        "subgroup arithmetic": "yes" if info.subgroup_arithmetic else "no",
        "float16": "yes" if info.float16 else "no",
        "timestamps": timestamps,
        "workgroup": f"{limits.max_compute_work_group_invocations} invocations,"
        f" {limits.max_compute_shared_memory_size >> 10} KiB shared",
        "workgroups": " x ".join(map(str, limits.max_compute_work_group_count)),
        "storage buffer": f"{limits.max_storage_buffer_range >> 20} MiB a binding,"
        f" {limits.max_per_stage_descriptor_storage_buffers} bindings,"
        f" offsets in {limits.min_storage_buffer_offset_alignment}",
        "allocation": f"{limits.max_memory_allocation_size >> 20} MiB",
    }


def _table(info: DeviceInfo) -> Table:
    table = Table(
        "property",
        "value",
        box=box.SIMPLE_HEAD,
        show_header=False,
        title=f"{info.index}: {info.name}",
        title_justify="left",
    )
    for name, value in properties(info).items():
        table.add_row(name, value)
    return table
