"""Elements of a page and of the drawings on it, as trees: whatever a name holds, it is written as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

Child = Element | str


def element(tag: str, *children: Child, **attributes: object) -> Element:
    """An element; an attribute's `_` is a `-`, and one at its end, for Python's own words, is left out."""
    made = Element(tag, {name.rstrip("_").replace("_", "-"): _number(value) for name, value in attributes.items()})
    add(made, children)
    return made


def add(parent: Element, children: Iterable[Child]) -> None:
    for child in children:
        if isinstance(child, Element):
            parent.append(child)
        elif len(parent):
            parent[-1].tail = (parent[-1].tail or "") + child
        else:
            parent.text = (parent.text or "") + child


def _number(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def table(columns: Sequence[str], rows: Iterable[Sequence[Child]], *, texts: int = 1) -> Element:
    """The first `texts` columns are texts, the others numbers."""
    kinds = ["text" if at < texts else "number" for at in range(len(columns))]

    def row(tag: str, cells: Sequence[Child]) -> Element:
        pairs = zip(cells, kinds, strict=True)
        return element("tr", *(element(tag, cell, class_=kind) for cell, kind in pairs))

    return element("table", element("thead", row("th", columns)), element("tbody", *(row("td", one) for one in rows)))


def written(root: Element) -> str:
    return tostring(root, encoding="unicode", method="html")
