"""HTML for notebooks: headings, tables and sections that open on a click, no scripts.

All text is escaped. Styles are attributes of the elements, since notebooks remove style
sheets.
"""

from collections.abc import Iterable, Sequence
from html import escape

_CELL = "padding:2px 10px 2px 0;white-space:nowrap;text-align:"


def block(title: str, *parts: str) -> str:
    """HTML of a heading, which may have several lines, followed by the given HTML parts."""
    lines = "<br>".join(escape(line) for line in title.splitlines())
    return f"<div><b>{lines}</b>{''.join(parts)}</div>"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table of text; a `>` at the start of a title right-aligns its column.

    If all titles are empty, the table has no head.
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
    """HTML of a line of text that opens on a click to show `body`, which is HTML."""
    return f"<details><summary>{escape(title)}</summary>{body}</details>"


def preformatted(text: str) -> str:
    """HTML of text in a monospaced font, which keeps its spaces and line breaks."""
    return f'<pre style="overflow-x:auto">{escape(text)}</pre>'
