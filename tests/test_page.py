"""The profile's page: whole by itself, its drawings to scale, its sections where their keys are."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element

import pytest
from click.testing import CliRunner
from conftest import absent, plain_environment
from hypothesis import given
from hypothesis import strategies as st

from vkcat.cli import cli
from vkcat.profile.drawing import WIDTH, Bar, Line, Part, Point, bars, plot, steps_of
from vkcat.profile.markup import element, table, written
from vkcat.profile.page import page

VOID = {"meta", "link", "br", "img", "hr", "input"}


class _Reader(HTMLParser):
    """Elements as they are nested, by Python's own parser of HTML."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts.setdefault(self.open[-1], []).append(data)


def _read(text: str) -> _Reader:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.open == []
    return reader


def _spread(median: float) -> dict[str, float]:
    return {"median": median, "p5": 0.9 * median, "p95": 1.2 * median}


def _schedule(name: str, step: float, kernel: float | None, apart: bool = True) -> dict[str, Any]:
    return {
        "name": name,
        "backend": "vulkan" if apart else "kompute",
        "dispatches_per_step": 2,
        "submits_per_step": 1.0,
        "step_us": _spread(step),
        "kernel_us": _spread(kernel) if kernel else None,
        "overhead_us": _spread(step - kernel) if kernel else None,
        "overhead_percent": None,
        "record_us": _spread(20.0),
        "submit_us": _spread(10.0) if apart else None,
        "wait_us": _spread(60.0) if apart else None,
        "submit_and_wait_us": _spread(70.0),
    }


def _kernel(name: str, median: float) -> dict[str, Any]:
    counts = {"calls_per_step": 1, "bytes_per_step": 1024}
    return {"name": name, "schedule": "batched", **counts, "time_us": _spread(median), "share_percent": 50.0}


FLOORS = ("empty_submit", "empty_dispatch", "barrier")
DOCUMENT: dict[str, Any] = {
    "device": {"name": "A & B <GPU>", "kind": "discrete", "driver": "d", "layers": []},
    "graph": "decode",
    "batch": 1,
    "runs": 5,
    "warmup": 1,
    "bytes_per_step": 2048,
    "floors": [{"backend": "vulkan", **{f"{key}_us": _spread(1.0) for key in FLOORS}}],
    "schedules": [_schedule("batched", 100.0, 50.0), _schedule("replay", 80.0, None, apart=False)],
    "kernels": [_kernel("gru_cell", 30.0), _kernel("linear", 20.0)],
}

ROOFLINE = {
    "ceilings": [
        {
            "backend": "vulkan",
            "working_set_bytes": 4096,
            "read_gbytes_per_s": _spread(10.0),
            "read_variant": "r",
            "multiply_add_gflops": _spread(100.0),
            "multiply_add_variant": "m",
            "dispatch_us": _spread(5.0),
        }
    ],
    "roofline": [
        {
            "name": "gru_cell",
            "schedule": "batched",
            "gbytes_per_s": 4.0,
            "gflops": 2.0,
            "operations_per_byte": 0.5,
            "ceiling": "read",
            "share_percent": 40.0,
        },
        {
            "name": "linear",
            "schedule": "batched",
            "gbytes_per_s": 4.0,
            "gflops": 0.0,
            "operations_per_byte": 0.0,
            "ceiling": "dispatch",
            "share_percent": 10.0,
        },
    ],
}
SWEEP = {
    "axis": "hidden",
    "points": [{"size": size, "schedules": [_schedule("replay", float(size), 1.0)]} for size in (64, 128, 256)],
}


def _headings(text: str) -> list[str]:
    return _read(text).texts["h2"]


def test_sections_appear_with_their_keys() -> None:
    base = ["A step", "Kernels", "Floors"]
    assert _headings(page(DOCUMENT)) == base
    assert _headings(page(DOCUMENT | ROOFLINE)) == ["A step", "Kernels", "Roofline", "Floors"]
    assert _headings(page(DOCUMENT | {"sweep": SWEEP})) == ["A step", "Kernels", "Sweep", "Floors"]
    assert _headings(page(DOCUMENT | {"ceilings": [], "roofline": [], "sweep": None})) == base
    bare = page(DOCUMENT | {"kernels": [], "schedules": DOCUMENT["schedules"][1:]})
    assert "none of the backends has GPU timestamps" in bare


def test_nothing_is_fetched_and_the_document_is_inside() -> None:
    document = DOCUMENT | ROOFLINE | {"sweep": SWEEP}
    text = page(document)
    reader = _read(text)
    for tag, attributes in reader.seen:
        assert not {"src", "href", "srcset", "action", "onload"} & attributes.keys(), tag
        assert tag not in {"link", "iframe", "img", "object", "base"}
    assert not re.search(r"url\(|@import|https?:", text)
    (script,) = [attributes for tag, attributes in reader.seen if tag == "script"]
    assert script["type"] == "application/json"
    assert json.loads("".join(reader.texts["script"])) == document


def test_names_are_text_whatever_they_hold() -> None:
    wicked = copy.deepcopy(DOCUMENT)
    wicked["device"]["driver"] = "</script><script>alert(1)</script>"
    wicked["kernels"][0]["name"] = '"><svg onload="x">&amp;'
    reader = _read(page(wicked))
    assert sum(tag == "script" for tag, _ in reader.seen) == 1
    assert not any("onload" in attributes for _, attributes in reader.seen)
    assert "</script><script>alert(1)</script>" in "".join(reader.texts["dd"])
    assert '"><svg onload="x">&amp;' in reader.texts["td"]
    assert "A & B <GPU>" in "".join(reader.texts["h1"])


def _rects(text: str) -> list[tuple[float, float]]:
    found = [attributes for tag, attributes in _read(text).seen if tag == "rect"]
    return [(float(one["x"]), float(one["width"])) for one in found]


def test_the_bars_are_to_scale() -> None:
    """batched: 20 + 10 of the host, 30 + 20 of kernels and the rest, 20; replay, of kompute: 20, 70, no rest."""
    rects = _rects(page(DOCUMENT))
    widths = [width for _, width in rects]
    assert len(rects) == 7
    scale = widths[0] / 20
    assert [width / scale for width in widths] == pytest.approx([20, 10, 30, 20, 20, 20, 70], abs=0.01)
    ends = [x + width for x, width in rects]
    for before, after in ((0, 1), (1, 2), (2, 3), (3, 4), (5, 6)):
        assert rects[after][0] == pytest.approx(ends[before], abs=0.02)
    assert all(end <= WIDTH for end in ends)
    # The measured step is marked: at 100, where the parts end, and at 80, before they do.
    marks = [float(a["x1"]) for tag, a in _read(page(DOCUMENT)).seen if tag == "line" and a["class"] == "whole"]
    assert marks == pytest.approx([ends[4], rects[5][0] + 80 * scale], abs=0.02)


def test_the_tables_have_the_numbers() -> None:
    text = "".join(_read(page(DOCUMENT | ROOFLINE)).texts["td"])
    for number in ("100.0 (90.0 to 120.0)", "70.0 (63.0 to 84.0) with wait", "30.0 (27.0 to 36.0)", "1,024", "40.0"):
        assert number in text


def test_a_plot_puts_decades_at_equal_distances() -> None:
    points = [Point(x, x * x, "", str(x), "red") for x in (1.0, 10.0, 100.0)]
    drawn = plot("t", points, [Line(((1.0, 1.0), (100.0, 1e4)), "l", "blue")], "x", "y")
    circles = [(float(one.get("cx", "")), float(one.get("cy", ""))) for one in drawn.iter("circle")]
    (left, low), (middle, between), (right, high) = circles
    assert middle - left == pytest.approx(right - middle, abs=0.02) != 0
    assert low - between == pytest.approx(between - high, abs=0.02) != 0
    assert low > high
    (line,) = drawn.iter("polyline")
    assert line.get("points") == f"{left:.2f},{low:.2f} {right:.2f},{high:.2f}"


@given(st.floats(1e-3, 1e9))
def test_marks_reach_beyond_what_is_drawn(most: float) -> None:
    marks = steps_of(most)
    assert marks[0] == 0
    assert marks[-1] >= most * (1 - 1e-9)
    assert 2 <= len(marks) <= 11


def test_a_bar_of_nothing() -> None:
    drawn = bars("t", [Bar("b", (Part("p", 0.0, "red"),), 0.0, "0")], "us")
    assert [one.get("width") for one in drawn.iter("rect")] == ["0.00"]


def test_markup() -> None:
    made = element("p", "a ", element("b", "<c>"), " d", " e", class_="x", text_anchor="end", x=1.0)
    assert written(made) == '<p class="x" text-anchor="end" x="1.00">a <b>&lt;c&gt;</b> d e</p>'
    assert isinstance(table(("a", "b"), [("1", element("i", "2"))]), Element)
    with pytest.raises(ValueError, match="zip"):
        table(("a", "b"), [("1",)])


def test_the_command_writes_it(g2p: Path, tmp_path: Path) -> None:
    path = tmp_path / "p.html"
    files = ["--html", str(path), "--json", str(tmp_path / "p.json")]
    done = CliRunner().invoke(cli, ["profile", str(g2p), "--runs", "3", "--warmup", "1", *files])
    assert done.exit_code == 0, (done.output, done.exception)
    reader = _read(path.read_text(encoding="utf-8"))
    inside = json.loads("".join(reader.texts["script"]))
    assert inside == json.loads((tmp_path / "p.json").read_text())
    bars_of_kernels = [one for one in reader.texts["title"] if ": gru_cell " in one]
    assert len(bars_of_kernels) == 3


def test_a_browser_shows_it(tmp_path: Path) -> None:
    """Headless Chromium draws every bar in the window and has nothing to complain of."""
    names = ("chromium", "chromium-browser", "google-chrome", "chromium-headless-shell", "chrome-headless-shell")
    browser = next(filter(None, map(shutil.which, names)), None)
    if browser is None:
        absent(f"a browser ({' or '.join(names)})")
    path = tmp_path / "p.html"
    check = (
        "<script>const out = [...document.querySelectorAll('rect')].map(r => r.getBoundingClientRect());"
        "document.title = JSON.stringify([out.length, out.filter(r => r.width > 0 && r.height > 0 && r.left >= 0"
        " && r.right <= innerWidth).length, document.querySelectorAll('svg').length]);</script></body>"
    )
    path.write_text(page(DOCUMENT | ROOFLINE | {"sweep": SWEEP}).replace("</body>", check), encoding="utf-8")
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1000,800", f"--user-data-dir={tmp_path}/u"]
    done = subprocess.run(
        [browser, *options, "--dump-dom", path.as_uri()],
        env=plain_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(_read(done.stdout).texts["title"][0]) == [7, 7, 3]
    assert "CONSOLE" not in done.stderr
