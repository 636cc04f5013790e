"""HTML for notebooks: plain headings, tables and parts that open, without scripts.

All text is escaped. Styles are attributes of the elements, since notebooks remove style
sheets.
"""

from collections.abc import Iterable, Sequence
from html import escape

_CELL = "padding:2px 10px 2px 0;white-space:nowrap;text-align:"


def block(title: str, *parts: str) -> str:
    """A heading, which may have several lines, above parts in HTML.

    Empty parts are left out.
    """
    lines = "<br>".join(escape(line) for line in title.splitlines())
    return f"<div><b>{lines}</b>{''.join(parts)}</div>"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of text; a title that begins with `>` is above a column of numbers.

    If no title has a text, the table has no head.
    """
    sides = ["right" if title.startswith(">") else "left" for title in titles]
    head = _row("th", [title.removeprefix(">") for title in titles], sides)
    has_head = any(title.strip(">") for title in titles)
    body = "".join(_row("td", row, sides) for row in rows)
    return (
        f'<div style="overflow-x:auto"><table>{head if has_head else ""}{body}</table>'
        "</div>"
    )


def _row(tag: str, cells: Sequence[str], sides: Sequence[str]) -> str:
    shown = "".join(
        f'<{tag} style="{_CELL}{side}">{escape(cell)}</{tag}>'
        for cell, side in zip(cells, sides, strict=True)
    )
    return f"<tr>{shown}</tr>"


def folded(title: str, body: str) -> str:
    """A line of text that opens on a click to show a body in HTML."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def preformatted(text: str) -> str:
    """Text with its spaces and line breaks, in letters of equal width."""
    return f'<pre style="overflow-x:auto">{escape(text)}</pre>'
