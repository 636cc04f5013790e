"""Pieces of HTML and SVG: escaped text, legends, sections and tooltips."""

from __future__ import annotations

import json
from html import escape

from meshwright.predict.compilers.hlo.fusion import FusionKind
from meshwright.predict.simulate.timeline import Span

TIMES, NONE = "\N{MULTIPLICATION SIGN}", "\N{EN DASH}"

KINDS = {
    "product": "matrix products",
    "loop": "elementwise",
    "reduction": "reductions",
    "other": "other computation",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_reduce": "all-reduce",
    "all_to_all": "all-to-all",
    "permute": "permute",
    "region": "loops and branches",
    "idle": "idle",
    "waiting": "waiting for others",
}
"""Names in legends by the CSS class that gives the colour, in the order of legends."""


def text(value: object) -> str:
    """Escaped text, safe inside an element and inside a quoted attribute."""
    return escape(str(value), quote=True)


def kind_of_span(span: Span) -> str:
    """The CSS class of a span: the kind of its fusion, or of its collective."""
    if span.fusion.kind is FusionKind.COLLECTIVE:
        return span.fusion.root.kind
    return span.fusion.kind.value


def legend(kinds: set[str]) -> str:
    """A legend of these kinds, in the order of `KINDS`."""
    chips = [
        f'<span class="chip"><i class="k-{kind}"></i>{text(name)}</span>'
        for kind, name in KINDS.items()
        if kind in kinds
    ]
    return f'<div class="legend">{"".join(chips)}</div>'


def section(name: str, title: str, lead: str, body: str) -> str:
    """A section of the page; `lead` and `body` are markup, `title` is text."""
    return (
        f'<section id="{name}"><h2>{text(title)}</h2>'
        f'<p class="lead">{lead}</p>{body}</section>'
    )


class Tooltips:
    """Lines of text that the page shows while the pointer is over a mark.

    Equal lines are stored once. A mark has the numbers of its lines in the attribute
    `data-tip`.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def add(self, *lines: str) -> str:
        """The attribute of a mark with these lines; empty lines are left out."""
        numbers = [
            self._numbers.setdefault(line, len(self._numbers)) for line in lines if line
        ]
        return f'data-tip="{" ".join(map(str, numbers))}"'

    def to_json(self) -> str:
        """JSON list of all lines, safe inside a script element."""
        shown = json.dumps(list(self._numbers), separators=(",", ":"))
        for mark in "<>&":
            shown = shown.replace(mark, f"\\u{ord(mark):04x}")
        return shown
