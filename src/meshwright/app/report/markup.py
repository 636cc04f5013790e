"""Helpers that make HTML: escaped text, legends, tables, sections and tooltips."""

import json
from collections.abc import Iterable, Sequence
from html import escape

from meshwright.app.output.notebook import folded
from meshwright.predict.compilers.model.fusion import FusionKind
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
    "bubble": "bubbles of the pipeline",
    "idle": "idle",
    "waiting": "waiting for others",
}
"""Legend text for each CSS class of the charts, in the order of legends."""


def text(value: object) -> str:
    """The value as escaped text, safe inside an element and inside a quoted attribute."""
    return escape(str(value), quote=True)


def kind_of_span(span: Span) -> str:
    """The CSS class for a span of the timeline: the kind of its fusion or collective."""
    if span.fusion.kind is FusionKind.COLLECTIVE:
        return span.fusion.root.kind
    return span.fusion.kind.value


def chip(look: str, body: str) -> str:
    """A legend entry: a square in the colour of the CSS class `look`, then HTML."""
    return f'<span class="chip"><i class="{look}"></i>{body}</span>'


def legend(chips: Iterable[str]) -> str:
    """An HTML line of legend entries, as `chip` makes them."""
    return f'<div class="legend">{"".join(chips)}</div>'


def legend_of(kinds: set[str]) -> str:
    """A legend that explains these CSS classes, in the order of `KINDS`."""
    return legend(chip(f"k-{k}", text(KINDS[k])) for k in KINDS if k in kinds)


def table(titles: Sequence[str], rows: Iterable[str]) -> str:
    """An HTML table; a `>` at the start of a title right-aligns its column.

    rows: complete `<tr>` elements.
    """
    head = "".join(
        f'<th class="n">{title[1:]}</th>' if title[:1] == ">" else f"<th>{title}</th>"
        for title in titles
    )
    return (
        f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    )


def numbers(*cells: str) -> str:
    """HTML table cells that are aligned as numbers."""
    return "".join(f'<td class="n">{cell}</td>' for cell in cells)


def bar(look: str, width: float) -> str:
    """An HTML table cell with a bar.

    look: CSS class of the bar. width: length of the bar in percent.
    """
    return f'<td class="bar"><i class="{look}" style="width:{width:.2f}%"></i></td>'


def more(count: int, body: str) -> str:
    """A line `count more` that opens on a click to show HTML; "" if `count` is 0."""
    if count <= 0:
        return ""
    return folded(f"{count} more", body)


def section(name: str, title: str, lead: str, body: str) -> str:
    """An HTML section of the page.

    name: the section's id. title: heading, escaped here. lead, body: HTML.
    """
    return (
        f'<section id="{name}"><h2>{text(title)}</h2>'
        f'<p class="lead">{lead}</p>{body}</section>'
    )


class Tooltips:
    """The texts of all tooltips on the page, each line stored once.

    An element lists the numbers of its lines in its attribute `data-tip`.
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def add(self, *lines: str) -> str:
        """The `data-tip` attribute for an element with these lines.

        Empty lines are left out.
        """
        numbers = [
            self._numbers.setdefault(line, len(self._numbers)) for line in lines if line
        ]
        return f'data-tip="{" ".join(map(str, numbers))}"'

    def to_json(self) -> str:
        """A JSON list of all lines, escaped for use inside a script element."""
        shown = json.dumps(list(self._numbers), separators=(",", ":"))
        for mark in "<>&":
            shown = shown.replace(mark, f"\\u{ord(mark):04x}")
        return shown
