"""Pictures of a packing: SVG, and a page of HTML around it."""

from collections.abc import Sequence
from html import escape

from meshwright.search.allocation.buffer import Buffer

_WIDTH, _HEIGHT, _MARGIN = 1000.0, 560.0, 12.0
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Allocation</title>
<style>body {{ font: 14px sans-serif; margin: 2em; }} svg {{ width: 100%; }}</style>
</head><body><h1>Allocation</h1><pre>{text}</pre>
<p>Time runs to the right, offsets upwards. The dashed line is the capacity.</p>
{drawn}</body></html>
"""


def draw_svg(
    buffers: Sequence[Buffer], offsets: Sequence[int], capacity: int | None
) -> str:
    """A rectangle for each span of each buffer, with its id, times and bytes as tooltip."""
    start = min((b.lower for b in buffers), default=0)
    end = max((b.upper for b in buffers), default=1)
    tops = [o + b.size for b, o in zip(buffers, offsets, strict=True)]
    height = max([*tops, capacity or 0, 1])
    x_scale, y_scale = _WIDTH / (end - start), _HEIGHT / height
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{-_MARGIN} {-_MARGIN} '
        f'{_WIDTH + 2 * _MARGIN} {_HEIGHT + 2 * _MARGIN}">',
        f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#f4f4f4"/>',
    ]
    for index, (buffer, offset) in enumerate(zip(buffers, offsets, strict=True)):
        color = f"hsl({index * 137.5 % 360:.0f} 55% 65%)"
        note = (
            f"{buffer.id}: {buffer.size} bytes at {offset}, "
            f"live {buffer.lower} to {buffer.upper}"
        )
        for lower, upper in buffer.spans:
            lines.append(
                f'<rect x="{(lower - start) * x_scale:.2f}" '
                f'y="{_HEIGHT - (offset + buffer.size) * y_scale:.2f}" '
                f'width="{(upper - lower) * x_scale:.2f}" '
                f'height="{buffer.size * y_scale:.2f}" fill="{color}" stroke="#333" '
                f'stroke-width="0.4"><title>{escape(_printable(note))}</title></rect>'
            )
    if capacity is not None:
        y = _HEIGHT - capacity * y_scale
        lines.append(
            f'<line x1="0" x2="{_WIDTH}" y1="{y:.2f}" y2="{y:.2f}" stroke="#b00" '
            'stroke-dasharray="6 4"/>'
        )
    return "\n".join([*lines, "</svg>"])


def draw_page(text: str, drawn: str) -> str:
    """A page of HTML with the figures as text and a picture."""
    return _PAGE.format(text=escape(text), drawn=drawn)


def _printable(text: str) -> str:
    """The text without control characters, which XML forbids."""
    return "".join(c if c.isprintable() else " " for c in text)
