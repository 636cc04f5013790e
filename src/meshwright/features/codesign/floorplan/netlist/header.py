"""The header of a `.plc`: comments that describe the canvas."""

import re
from collections.abc import Sequence
from pathlib import Path

from meshwright.errors import FloorplanError
from meshwright.features.codesign.floorplan.netlist.canvas import Blockage, Canvas

_NUMBER = r"([-+0-9.eE]+)"
_FIELDS = {
    ("columns", "rows"): r"Columns\s*:\s*(\d+)\s+Rows\s*:\s*(\d+)\s*$",
    ("width", "height"): rf"Width\s*:\s*{_NUMBER}\s+Height\s*:\s*{_NUMBER}\s*$",
    ("routes_across", "routes_up"): (
        rf"Routes per micron, hor\s*:\s*{_NUMBER}\s+ver\s*:\s*{_NUMBER}\s*$"
    ),
    ("macro_across", "macro_up"): (
        rf"Routes used by macros, hor\s*:\s*{_NUMBER}\s+ver\s*:\s*{_NUMBER}\s*$"
    ),
    ("smoothing",): r"Smoothing factor\s*:\s*(\d+)\s*$",
    ("overlap_threshold",): rf"Overlap threshold\s*:\s*{_NUMBER}\s*$",
}
"""Fields of the canvas in the header, and how the header spells them."""

_BLOCKAGE = re.compile(rf"#\s*Blockage\s*:\s*{r'\s+'.join([_NUMBER] * 5)}\s*$")
_LABEL = re.compile(
    r"#\s*(Columns|Width|Routes per micron|Routes used by macros|Smoothing factor"
    r"|Overlap threshold|Blockage)(?:,\s*hor)?\s*:"
)
"""Beginning of a line of the header that has to be read in full."""
_EXAMPLES = {
    "Columns": "# Columns : 24  Rows : 21",
    "Width": "# Width : 500  Height : 500",
    "Routes per micron": "# Routes per micron, hor : 57.031  ver : 56.818",
    "Routes used by macros": "# Routes used by macros, hor : 39.583  ver : 30.303",
    "Smoothing factor": "# Smoothing factor : 2",
    "Overlap threshold": "# Overlap threshold : 0.0",
    "Blockage": "# Blockage : 0 0 40 20 1.0",
}
_WHOLE = ("columns", "rows", "smoothing")


def read_header(comments: Sequence[str], path: Path) -> Canvas:
    """The canvas that the comments of a `.plc` describe."""
    values: dict[str, float] = {}
    text = "\n".join(comments)
    patterns = [re.compile(rf"#\s*{each}") for each in _FIELDS.values()]
    for line in filter(_LABEL.match, comments):
        if not any(each.match(line) for each in (*patterns, _BLOCKAGE)):
            raise FloorplanError(
                f"the header of {path} has the line {line!r:.80}, which cannot be read; "
                f"wanted such as {_EXAMPLES[_LABEL.match(line)[1]]!r}"  # pyright: ignore[reportOptionalSubscript]
            )
    for names, pattern in _FIELDS.items():
        match = re.search(rf"^#\s*{pattern}", text, re.MULTILINE)
        if match is not None:
            values |= {
                n: _float(t, path) for n, t in zip(names, match.groups(), strict=True)
            }
    for first in ("columns", "width"):
        if first not in values:
            raise FloorplanError(
                f"the header of {path} lacks {first}; wanted '# Columns : 24  Rows : 21' "
                "and '# Width : 500  Height : 500' (microns)"
            )
    whole = {name: int(values.pop(name)) for name in _WHOLE if name in values}
    found = (_BLOCKAGE.match(line) for line in comments)
    blockages = (Blockage(*(_float(t, path) for t in m.groups())) for m in found if m)
    return Canvas(**values, **whole, blockages=tuple(blockages))  # pyright: ignore[reportArgumentType]


def _float(text: str, path: Path) -> float:
    try:
        return float(text)
    except ValueError:
        raise FloorplanError(
            f"the header of {path} has {text!r} for a number"
        ) from None
