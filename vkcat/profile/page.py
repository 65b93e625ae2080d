"""A measurement as one HTML page that needs nothing else: no network, no script.

It is made from the JSON document of `--json`, and holds that document. A section appears when its keys are there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from xml.etree.ElementTree import Element

from vkcat.profile.drawing import Bar, Line, Part, Point, bars, color, legend, plot
from vkcat.profile.markup import Child, element, table, written

Document = Mapping[str, Any]

STYLE = """
:root { color-scheme: light dark; --grid: #8884; --faint: #8888; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2.5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
table { margin: 1rem 0; } th, td { padding: .2rem .7rem; border-bottom: 1px solid var(--grid); white-space: nowrap; }
.text { text-align: left; } .number { text-align: right; }
svg { width: 100%; height: auto; overflow: visible; } svg text { fill: currentColor; font-size: 13px; }
.grid { stroke: var(--grid); } .whole { stroke: currentColor; stroke-width: 2; }
.line { fill: none; stroke-width: 2; }
.legend { list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; }
.swatch { display: inline-block; width: .8em; height: .8em; margin-right: .4em; border-radius: 2px; }
.note { opacity: .75; } dl { display: grid; grid-template-columns: max-content auto; gap: 0 1rem; } dd { margin: 0; }
"""

RECORD, SUBMIT, REST, SUBMIT_AND_WAIT = "record", "submit", "wait, write and read", "submit and wait"
HOST_FILLS = {RECORD: "#777777", SUBMIT: "#a0a0a0", SUBMIT_AND_WAIT: "#a0a0a0", REST: "#c8c8c8"}


def page(document: Document) -> str:
    """The page. Raises `KeyError` for a document that is no measurement."""
    title = f"vkcat profile: {document.get('model', document['graph'])} on {document['device']['name']}"
    sections = [
        _about(document),
        *_step(document),
        *_kernels(document),
        *(_roofline(document) if document.get("roofline") and document.get("ceilings") else []),
        *(_sweep(document["sweep"]) if document.get("sweep") else []),
        *_floors(document),
    ]
    data = element("script", json.dumps(document).replace("<", "\\u003c"), type="application/json", id="measurement")
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", STYLE),
    )
    root = element("html", head, element("body", element("h1", title), *sections, data), lang="en")
    return f"<!DOCTYPE html>\n{written(root)}\n"


def _about(document: Document) -> Element:
    device = document["device"]
    facts = {
        "device": f"{device['name']} ({device['kind']})",
        "driver": device["driver"],
        "layers": ", ".join(device["layers"]) or "none active",
        "step": f"{document['graph']}, batch {document['batch']}",
        "measured": f"{document['runs']} steps after {document['warmup']} warm-up steps, in blocks that take turns",
        "bytes moved": f"at most {document['bytes_per_step']:,} a step",
    }
    return element("dl", *(part for name, text in facts.items() for part in (element("dt", name), element("dd", text))))


def _section(title: str, *children: Child) -> list[Element]:
    return [element("section", element("h2", title), *(c for c in children if not isinstance(c, str) or c))]


def _note(text: str) -> Element:
    return element("p", text, class_="note")


def _spread(spread: Mapping[str, float] | None, form: str = ",.1f") -> str:
    if spread is None:
        return "-"
    return f"{spread['median']:{form}} ({spread['p5']:{form}} to {spread['p95']:{form}})"


def _named(times: Mapping[str, Any], document: Document) -> str:
    """A schedule, with its backend where several were measured."""
    backends = {one["backend"] for one in document["schedules"]}
    return f"{times['name']}, {times['backend']}" if len(backends) > 1 else str(times["name"])


def _fills(document: Document) -> dict[str, str]:
    """The colour of each kernel, the same everywhere on the page."""
    names = dict.fromkeys(kernel["name"] for kernel in document["kernels"])
    return {name: color(at) for at, name in enumerate(names)}


def _step(document: Document) -> list[Element]:
    rows = [_bar(times, document) for times in document["schedules"]]
    steps = [
        (
            times["name"],
            times["backend"],
            str(times["dispatches_per_step"]),
            f"{times['submits_per_step']:.3g}",
            *(_spread(times[key]) for key in ("step_us", "kernel_us", "overhead_us")),
        )
        for times in document["schedules"]
    ]
    host = [
        (
            times["name"],
            times["backend"],
            _spread(times["record_us"]),
            _spread(times["submit_us"]) if times["submit_us"] else f"{_spread(times['submit_and_wait_us'])} with wait",
            _spread(times["wait_us"]),
        )
        for times in document["schedules"]
    ]
    return _section(
        "A step",
        bars("Microseconds of a step by schedule", rows, "us"),
        legend([part for row in rows for part in row.parts]),
        _note(
            "Medians in microseconds; the line is the measured step. Kernels are timed in other steps, with timestamps,"
            " so that the parts need not add up to it."
        ),
        table(("schedule", "backend", "dispatches", "submits", "step", "kernels", "overhead"), steps, texts=2),
        table(("schedule", "backend", "record", "submit", "wait"), host, texts=2),
        _note("Median (5th to 95th percentile), in microseconds."),
    )


def _bar(times: Mapping[str, Any], document: Document) -> Bar:
    """What the host records and submits, the kernels, and what the step took beside these."""
    step = times["step_us"]["median"]
    submitted = (SUBMIT, times["submit_us"]) if times["submit_us"] else (SUBMIT_AND_WAIT, times["submit_and_wait_us"])
    host = [(RECORD, times["record_us"]["median"]), (submitted[0], submitted[1]["median"])]
    parts = [Part(name, value, HOST_FILLS[name]) for name, value in host if value > 0]
    if times["kernel_us"]:
        fills = _fills(document)
        own = [kernel for kernel in document["kernels"] if kernel["schedule"] == times["name"]]
        parts += [Part(k["name"], k["time_us"]["median"], fills[k["name"]]) for k in own]
    rest = step - sum(part.value for part in parts)
    if rest > 0:
        parts.append(Part(REST, rest, HOST_FILLS[REST]))
    return Bar(_named(times, document), tuple(parts), step, f"{step:.1f}")


def _kernels(document: Document) -> list[Element]:
    kernels = document["kernels"]
    if not kernels:
        return _section("Kernels", _note("Not known: none of the backends has GPU timestamps."))
    counted = "operations_per_step" in kernels[0]
    columns = ["kernel", "schedule", "calls", "bytes", *(["operations"] if counted else []), "time, us", "% of kernels"]
    rows = [
        [
            kernel["name"],
            kernel["schedule"],
            str(kernel["calls_per_step"]),
            f"{kernel['bytes_per_step']:,}",
            *([f"{kernel['operations_per_step']:,}"] if counted else []),
            _spread(kernel["time_us"]),
            f"{kernel['share_percent']:.1f}",
        ]
        for kernel in kernels
    ]
    return _section("Kernels", table(columns, rows, texts=2), _note("All calls of a step together, at most."))


def _roofline(document: Document) -> list[Element]:
    fills, schedule = _fills(document), document["roofline"][-1]["schedule"]
    own = [one for one in document["roofline"] if one["operations_per_byte"] > 0 and one["schedule"] == schedule]
    points = [
        Point(
            one["operations_per_byte"],
            one["gflops"],
            one["name"],
            f"{one['name']}: {one['gflops']:.3g} GFLOP/s, {one['share_percent']:.1f}% of {one['ceiling']}",
            fills[one["name"]],
        )
        for one in own
    ]
    shown = [_roofs(document["ceilings"][0], points)] if points else []
    columns = ("kernel", "schedule", "bound by", "GB/s", "GFLOP/s", "FLOP/byte", "% of ceiling")
    numbers = ("gbytes_per_s", "gflops", "operations_per_byte")
    rows = [
        (r["name"], r["schedule"], r["ceiling"], *(f"{r[key]:.3g}" for key in numbers), f"{r['share_percent']:.1f}")
        for r in document["roofline"]
    ]
    tops = [
        f"{top['backend']}: reading {_spread(top['read_gbytes_per_s'], '.3g')} GB/s"
        f" from {top['working_set_bytes']:,} bytes,"
        f" multiply-adds {_spread(top['multiply_add_gflops'], '.3g')} GFLOP/s,"
        f" an empty dispatch {_spread(top['dispatch_us'])} us."
        for top in document["ceilings"]
    ]
    drawn = f"Drawn: {schedule}, kernels that compute." if points else ""
    return _section("Roofline", *shown, _note(" ".join([*tops, drawn]).strip()), table(columns, rows, texts=3))


def _roofs(top: Mapping[str, Any], points: Sequence[Point]) -> Element:
    """The ceilings over two decades around the kernels, which have to stay below them."""
    read, most = top["read_gbytes_per_s"]["median"], top["multiply_add_gflops"]["median"]
    ridge = most / read
    least, greatest = min(*(p.x for p in points), ridge) / 2, max(*(p.x for p in points), ridge) * 4
    roof = Line(((least, least * read), (ridge, most), (greatest, most)), f"{most:.3g} GFLOP/s", "currentColor")
    return plot("Roofline", points, [roof], "operations a byte", "10^9 operations a second")


def _sweep(sweep: Mapping[str, Any]) -> list[Element]:
    """Of `axis`, its name, and `points`, each with its `size` and the `schedules` as a measurement has them."""
    series: dict[str, list[tuple[float, float]]] = {}
    for point in sweep["points"]:
        for times in point["schedules"]:
            name = f"{times['name']}, {times['backend']}"
            series.setdefault(name, []).append((float(point["size"]), times["step_us"]["median"]))
    lines = [Line(tuple(points), name, color(at)) for at, (name, points) in enumerate(series.items())]
    dots = [
        Point(x, y, "", f"{line.label}: {sweep['axis']} {x:g}, {y:.1f} us", line.fill)
        for line in lines
        for x, y in line.points
    ]
    sizes = [point["size"] for point in sweep["points"]]
    rows = [(line.label, *(f"{y:.1f}" for _, y in line.points)) for line in lines]
    columns = ("schedule", *(f"{sweep['axis']} {size}" for size in sizes))
    drawn = plot(f"Step by {sweep['axis']}", dots, lines, str(sweep["axis"]), "us a step")
    return _section("Sweep", drawn, table(columns, rows), _note("Medians in microseconds."))


def _floors(document: Document) -> list[Element]:
    keys = ("empty_submit_us", "empty_dispatch_us", "barrier_us")
    rows = [(floor["backend"], *(_spread(floor[key]) for key in keys)) for floor in document["floors"]]
    columns = ("backend", "empty submit", "empty dispatch", "barrier")
    return _section("Floors", table(columns, rows), _note("What device and driver cost with no work, in microseconds."))
