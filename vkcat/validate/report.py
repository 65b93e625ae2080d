"""Results as a table, as JSON and as JUnit."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from math import isfinite
from typing import Any

import msgspec
from rich import box
from rich.table import Table

from vkcat.device.interface import Device
from vkcat.device.layers import active_layers
from vkcat.validate.result import Result

COLUMNS = ("op", "tensor", "cases", "max abs", "max rel", "NMSE", "max ULP", "bound", "result")


def table(results: Sequence[Result]) -> Table:
    """One row an op and tensor with its worst figures."""
    shown = Table(*COLUMNS, box=box.SIMPLE_HEAD)
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.op, result.tensor), []).append(result)
    for (op, tensor), group in groups.items():
        failed = [result for result in group if not result.passed]
        shown.add_row(
            op,
            tensor,
            str(len(group)),
            f"{_worst(group, 'max_absolute'):.2e}",
            f"{_worst(group, 'max_relative'):.2e}",
            f"{_worst(group, 'nmse'):.2e}",
            f"{_worst(group, 'max_ulp'):.1f}",
            f"{_worst(group, 'bound'):.2e}",
            f"[red]{len(failed)} failed[/red]" if failed else "ok",
        )
    return shown


def _worst(group: Sequence[Result], name: str) -> float:
    """The largest figure; NaN is larger than any."""
    values = [float(getattr(result, name)) for result in group]
    return next((value for value in values if value != value), max(values))


def bounds(results: Sequence[Result]) -> list[str]:
    """Why each op's bound is what it is; the table shows its largest, the comparison is element by element."""
    reasons = {result.op: result.why for result in results}
    return [f"bound of {op}: {why}" for op, why in reasons.items()]


def failures(results: Sequence[Result]) -> list[str]:
    return [f"{result.op} {result.case} {result.tensor}: {result.problem}" for result in results if not result.passed]


def as_json(results: Sequence[Result], device: Device) -> dict[str, Any]:
    return {
        "device": msgspec.to_builtins(device.info),
        "backend": device.backend,
        "layers": active_layers(),
        "checked": len(results),
        "failed": sum(not result.passed for result in results),
        "results": [_figures(result) | {"passed": result.passed} for result in results],
    }


def _figures(result: Result) -> dict[str, Any]:
    """JSON has no infinite numbers: null stands for them."""
    values = msgspec.to_builtins(result)
    return {name: None if isinstance(value, float) and not isfinite(value) else value for name, value in values.items()}


def as_junit(results: Sequence[Result], device: Device) -> str:
    failed = sum(not result.passed for result in results)
    name = f"vkcat validate: {device.backend} on {device.info.name}"
    suite = ElementTree.Element("testsuite", name=name, tests=str(len(results)), failures=str(failed), errors="0")
    for result in results:
        case = ElementTree.SubElement(suite, "testcase", classname=result.op, name=f"{result.case} {result.tensor}")
        if not result.passed:
            ElementTree.SubElement(case, "failure", message=result.problem)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
