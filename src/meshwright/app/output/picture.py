"""HTML pages with a picture in SVG, and the parts of such pictures; no scripts."""

from collections.abc import Iterable
from html import escape

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body {{ font: 14px sans-serif; margin: 2em; }} svg {{ width: 100%; }}</style>
</head><body><h1>{title}</h1><pre>{text}</pre>
<p>{lead}</p>
{body}</body></html>
"""


def page(title: str, text: str, lead: str, body: str) -> str:
    """A whole HTML page with a heading, figures as text, and a picture.

    lead: a paragraph that says what the picture shows. body: HTML, not escaped.
    """
    return _PAGE.format(
        title=escape(title), text=escape(text), lead=escape(lead), body=body
    )


def svg(size: tuple[float, float], marks: Iterable[str], margin: float = 0.0) -> str:
    """An SVG picture of the given width and height, with a margin around it.

    marks: the elements of the picture.
    """
    width, height = size[0] + 2 * margin, size[1] + 2 * margin
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" '
        f'viewBox="{0 - margin} {0 - margin} {width} {height}">'
    )
    return "\n".join([head, *marks, "</svg>"])


def box(
    corner: tuple[float, float],
    size: tuple[float, float],
    fill: str,
    note: str,
    outline: str = "",
) -> str:
    """An SVG rectangle with a tooltip.

    corner: x and y of its upper left corner. size: its width and height.
    note: the tooltip. outline: attributes of its border, such as `stroke="#333"`.
    """
    (x, y), (width, height) = corner, size
    # XML forbids control characters.
    shown = "".join(c if c.isprintable() else " " for c in note)
    border = f" {outline}" if outline else ""
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}" '
        f'fill="{fill}"{border}><title>{escape(shown)}</title></rect>'
    )


def limit_line(width: float, y: float) -> str:
    """A dashed SVG line across a picture, for a limit."""
    return (
        f'<line x1="0" x2="{width}" y1="{y:.2f}" y2="{y:.2f}" stroke="#b00" '
        'stroke-dasharray="6 4"/>'
    )
