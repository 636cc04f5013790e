"""Tables of text, which print with aligned columns and become HTML in notebooks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshwright.app.output import notebook

if TYPE_CHECKING:
    import rich.table

_WIDE = 160
"""Width in characters of a table as text."""


def columns(
    rows: Iterable[Sequence[object]], widths: Sequence[str], gap: str = ""
) -> list[str]:
    """A line of text for each row, with its cells in columns of fixed widths.

    A longer cell moves the rest of its line to the right. Lines have no spaces at the end.
    widths: for each column a format, such as `20`, or `>12` to align at the right.
    gap: the text between two columns.

    >>> columns([("", "bytes"), ("peak", "3 MiB")], ("6", ">7"))
    ['        bytes', 'peak    3 MiB']
    """
    return [gap.join(map(format, row, widths)).rstrip() for row in rows]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text under column titles.

    A `>` at the start of a title right-aligns the column, as for numbers.
    """

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __rich__(self) -> "rich.table.Table":
        import rich.table  # imported late: only where a table is printed

        table = rich.table.Table(box=None, pad_edge=False)
        for title in self.titles:
            justify = "right" if title.startswith(">") else "left"
            table.add_column(title.removeprefix(">"), justify=justify, overflow="fold")
        for row in self.rows:
            table.add_row(*row)
        return table

    def __str__(self) -> str:
        from rich.console import Console

        console = Console(width=_WIDE, color_system=None)
        with console.capture() as captured:
            console.print(self)
        return "\n".join(line.rstrip() for line in captured.get().splitlines())

    def to_html(self) -> str:
        """The table as HTML."""
        return notebook.table(self.titles, self.rows)

    _repr_html_ = to_html
