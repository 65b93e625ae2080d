"""Results as JSON, and as the tables of docs/benchmarks.md."""

from __future__ import annotations

import datetime
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measure import QUIET, SceneTimes
from vkcat.device.layers import requested_layers

FORMAT = "vkcat-bench/1"
OWN = ("vkcat vulkan replay", "vkcat vulkan unrolled")
"""What the others are compared with."""

BUSY = (
    "**Taken on a busy machine**, as is said at each table: only ratios within a table mean anything, and none to a"
    " library whose threads wait for each other by spinning, as torch's do."
)


def as_json(scenes: Sequence[SceneTimes], threads: int) -> dict[str, Any]:
    """Times are in microseconds a step; see benchmarks/measure.py."""
    return {
        "format": FORMAT,
        "date": datetime.date.today().isoformat(),
        "machine": {
            "processor": _processor(),
            "cores": cores(),
            "threads": threads,
            "system": f"{platform.system()} {platform.machine()}",
            "python": platform.python_version(),
            "layers": requested_layers(),
        },
        "scenes": [msgspec.to_builtins(scene) for scene in scenes],
    }


def _processor() -> str:
    """The processor's model by name, where the system tells."""
    information = Path("/proc/cpuinfo")
    if information.is_file():
        for line in information.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def cores() -> int:
    """Processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tables(runs: Sequence[Mapping[str, Any]]) -> str:
    """Markdown of what `as_json` returned, of one run or several."""
    lines = []
    for run in runs:
        lines += _run(run)
    lines += _contenders([scene for run in runs for scene in run["scenes"]])
    return "\n".join(lines) + "\n"


def _run(run: Mapping[str, Any]) -> list[str]:
    machine, scenes = run["machine"], run["scenes"]
    layers = ", ".join(machine["layers"]) or "none"
    lines = [
        f"### {_threads(machine['threads'])}",
        "",
        f"{run['date']}, {machine['processor']}, {machine['cores']} cores, {machine['system']}; {_versions(scenes)};"
        f" layers: {layers}.",
        "",
    ]
    if any((scene["disturbance"] or 0) > QUIET for scene in scenes):
        lines += [BUSY, ""]
    for scene in scenes:
        lines += _scene(scene)
    return lines


def _threads(threads: int) -> str:
    if threads:
        return f"{threads} {'thread' if threads == 1 else 'threads'} for each contender's kernels"
    return "Kernels in the thread of lavapipe's queue, and one thread for each library"


def _versions(scenes: Sequence[Mapping[str, Any]]) -> str:
    found: dict[str, dict[str, None]] = {}
    for scene in scenes:
        for contender in scene["contenders"]:
            for name, version in contender["versions"].items():
                found.setdefault(name, {})[version] = None
    return ", ".join(f"{name} {' and '.join(versions)}" for name, versions in found.items())


def _scene(scene: Mapping[str, Any]) -> list[str]:
    streams = "one stream" if scene["batch"] == 1 else f"{scene['batch']} streams"
    lines = [
        f"#### {scene['model']}, {streams}",
        "",
        f"Microseconds a step: medians of {scene['rounds']} rounds of {scene['block']} steps{_disturbed(scene)}."
        f" {_device(scene)}",
        "",
        "| contender | step | outside kernels | error |",
        "|---|---|---|---|",
    ]
    for contender in scene["contenders"]:
        cells = [_spread(contender["step_us"]), _estimate(contender["overhead_us"]), f"{contender['error']:.0e}"]
        lines.append(f"| {contender['name']} | {' | '.join(cells)} |")
    lines += ["", *_ratios(scene)]
    for left in scene["left_out"]:
        lines += [f"Not measured: {left['name']}: {left['why']}.", ""]
    return lines


def _ratios(scene: Mapping[str, Any]) -> list[str]:
    by_name = {contender["name"]: contender for contender in scene["contenders"]}
    own = [by_name[name] for name in OWN if name in by_name]
    others = [one for one in scene["contenders"] if not one["name"].startswith("vkcat")]
    if not own or not others:
        return []
    heads = [f"step, of {one['name']}" for one in own] + [f"outside kernels, of {one['name']}" for one in own]
    lines = [f"| times as much | {' | '.join(heads)} |", "|---" * (1 + len(heads)) + "|"]
    for other in others:
        cells = [f"{_step_ratio(other, one):.2f}" for one in own] + [_overhead_ratio(other, one) for one in own]
        lines.append(f"| {other['name']} | {' | '.join(cells)} |")
    return [*lines, ""]


def _step_ratio(other: Mapping[str, Any], own: Mapping[str, Any]) -> float:
    """The median of the rounds' ratios."""
    rounds = zip(other["rounds_us"], own["rounds_us"], strict=True)
    return float(statistics.median(theirs / ours for theirs, ours in rounds))


def _overhead_ratio(other: Mapping[str, Any], own: Mapping[str, Any]) -> str:
    """Of medians; where ours cannot be told from nothing, at least what the two intervals allow."""
    if other["overhead_us"] is None or own["overhead_us"] is None:
        return "-"
    theirs, ours = other["overhead_us"], own["overhead_us"]
    if ours["low"] > 0:
        return f"{theirs['median'] / ours['median']:.1f}"
    return f"over {theirs['low'] / ours['high']:.1f}" if ours["high"] > 0 and theirs["low"] > 0 else "-"


def _contenders(scenes: Sequence[Mapping[str, Any]]) -> list[str]:
    """Each contender with what it is, and what had to be done differently."""
    lines = ["| contender | is |", "|---|---|"]
    notes: dict[str, None] = {}
    seen: dict[str, str] = {}
    for contender in (one for scene in scenes for one in scene["contenders"]):
        seen[contender["name"]] = contender["what"]
        notes.update(dict.fromkeys(contender["notes"]))
    lines += [f"| {name} | {what} |" for name, what in seen.items()]
    return [*lines, "", *(f"{note}." for note in notes)]


def _disturbed(scene: Mapping[str, Any]) -> str:
    share = scene["disturbance"]
    return "" if share is None else f", in which others took at most {share:.0%} of the processor"


def _device(scene: Mapping[str, Any]) -> str:
    times = ", ".join(f"{_spread(times)} {kind}" for kind, times in scene["device_us"].items())
    return f"Device time of vkcat's shaders: {times}."


def _estimate(estimate: Mapping[str, float] | None) -> str:
    if estimate is None:
        return "-"
    return f"{estimate['median']:.0f} [{estimate['low']:.0f}, {estimate['high']:.0f}]"


def _spread(spread: Mapping[str, float] | None) -> str:
    if spread is None:
        return "-"
    return f"{spread['median']:.0f} ({spread['p5']:.0f} to {spread['p95']:.0f})"
