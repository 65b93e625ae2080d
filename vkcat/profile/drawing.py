"""Drawings for a page, as inline SVG: stacked bars, and points and lines on logarithmic axes.

Drawn here rather than by a plotting library: a page with one of those inside is megabytes, or needs a network.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from xml.etree.ElementTree import Element

from msgspec import Struct

from vkcat.profile.markup import element

# Okabe and Ito, Color Universal Design, 2008, told apart by the colour-blind, without black, which is left to text;
# then what P. Tol's muted scheme adds.
PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#b8a800", "#882255", "#44aa99", "#332288")
WIDTH = 960
_LEFT, _RIGHT, _TOP, _BOTTOM = 170, 130, 8, 34
_ROW, _BAR = 34, 22


def color(at: int) -> str:
    return PALETTE[at % len(PALETTE)]


class Part(Struct, frozen=True):
    """One piece of a bar; `fill` is a CSS colour."""

    name: str
    value: float
    fill: str


class Bar(Struct, frozen=True):
    """Pieces from left to right, and the whole as it was measured, which is marked."""

    label: str
    parts: tuple[Part, ...]
    whole: float
    note: str


def _text(x: float, y: float, text: str, anchor: str = "start") -> Element:
    return element("text", text, x=float(x), y=float(y), text_anchor=anchor)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Element:
    return element("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=kind)


def _svg(height: float, title: str, *children: Element) -> Element:
    drawn = element("svg", element("title", title), *children, viewBox=f"0 0 {WIDTH} {height:g}", role="img")
    drawn.set("aria-label", title)
    return drawn


def steps_of(most: float) -> list[float]:
    """Round numbers from 0 to at least `most`: four to ten of them."""
    rough = most / 5
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * unit for factor in (1, 2, 5, 10) if factor * unit >= rough)
    return [at * step for at in range(math.ceil(most / step) + 1)]


def bars(title: str, rows: Sequence[Bar], unit: str) -> Element:
    """Horizontal bars on one scale from 0."""
    most = max(max(row.whole, sum(part.value for part in row.parts)) for row in rows)
    marks = steps_of(max(most, 1e-3))
    scale = (WIDTH - _LEFT - _RIGHT) / marks[-1]
    bottom = _TOP + _ROW * len(rows)
    drawn = []
    for mark in marks:
        x = _LEFT + mark * scale
        drawn += [_line(x, _TOP, x, bottom, "grid"), _text(x, bottom + 18, f"{mark:g}", "middle")]
    for at, row in enumerate(rows):
        y, x = _TOP + _ROW * at + (_ROW - _BAR) / 2, float(_LEFT)
        drawn.append(_text(_LEFT - 10, y + 16, row.label, "end"))
        for part in row.parts:
            width = part.value * scale
            shown = element("title", f"{row.label}: {part.name} {part.value:.1f} {unit}")
            drawn.append(element("rect", shown, x=x, y=y, width=width, height=float(_BAR), fill=part.fill))
            x += width
        whole = _LEFT + row.whole * scale
        drawn += [_line(whole, y - 3, whole, y + _BAR + 3, "whole"), _text(max(x, whole) + 8, y + 16, row.note)]
    drawn.append(_text(WIDTH - _RIGHT + 40, bottom + 18, unit))
    return _svg(bottom + _BOTTOM, title, *drawn)


def legend(parts: Sequence[Part]) -> Element:
    """Each name once, with its colour."""
    found = {part.name: part.fill for part in parts}
    shown = [
        element("li", element("span", style=f"background:{fill}", class_="swatch"), name)
        for name, fill in found.items()
    ]
    return element("ul", *shown, class_="legend")


class Point(Struct, frozen=True):
    """A mark at x and y, above 0; `label` is written beside it, `about` shown when it is pointed at."""

    x: float
    y: float
    label: str
    about: str
    fill: str


class Line(Struct, frozen=True):
    """Points joined in order; `label` is written at the end."""

    points: tuple[tuple[float, float], ...]
    label: str
    fill: str


class _Logarithmic:
    """An axis over whole decades, from `begin` to `end` on the page."""

    def __init__(self, values: Sequence[float], begin: float, end: float) -> None:
        self._low = math.floor(math.log10(min(values)))
        self._high = max(math.ceil(math.log10(max(values))), self._low + 1)
        self._begin, self._scale = begin, (end - begin) / (self._high - self._low)

    def at(self, value: float) -> float:
        return self._begin + (math.log10(value) - self._low) * self._scale

    @property
    def marks(self) -> list[float]:
        return [10.0**power for power in range(self._low, self._high + 1)]


def plot(title: str, points: Sequence[Point], lines: Sequence[Line], x_name: str, y_name: str) -> Element:
    """Points and lines over logarithmic axes."""
    height = 420
    left, right, top, bottom = 80, WIDTH - 200, 30, height - 50
    xs = [point.x for point in points] + [x for line in lines for x, _ in line.points]
    ys = [point.y for point in points] + [y for line in lines for _, y in line.points]
    across, up = _Logarithmic(xs, left, right), _Logarithmic(ys, bottom, top)
    drawn = []
    for mark in across.marks:
        x = across.at(mark)
        drawn += [_line(x, top, x, bottom, "grid"), _text(x, bottom + 18, f"{mark:g}", "middle")]
    for mark in up.marks:
        y = up.at(mark)
        drawn += [_line(left, y, right, y, "grid"), _text(left - 8, y + 5, f"{mark:g}", "end")]
    drawn += [_text((left + right) / 2, height - 8, x_name, "middle"), _text(left - 60, 16, y_name)]
    for line in lines:
        corners = " ".join(f"{across.at(x):.2f},{up.at(y):.2f}" for x, y in line.points)
        drawn.append(element("polyline", points=corners, stroke=line.fill, class_="line"))
        x, y = line.points[-1]
        drawn.append(_text(across.at(x) + 8, up.at(y) + 5, line.label))
    for point in points:
        x, y = across.at(point.x), up.at(point.y)
        drawn.append(element("circle", element("title", point.about), cx=x, cy=y, r=5.0, fill=point.fill))
        if point.label:
            drawn.append(_text(x + 9, y + 4, point.label))
    return _svg(height, title, *drawn)
