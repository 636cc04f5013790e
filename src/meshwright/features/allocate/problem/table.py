"""MiniMalloc's CSV: a row per buffer with id, lower, upper, size, and optional columns.

Optional: `alignment`, `gaps` ("3-5 8-9": half-open times), `offset`, where a number fixes
the buffer. Other spellings are read, too: `buffer` or `buffer_id` for `id`, `start` or
`begin` for `lower`, and `end`, which names the last live time, for `upper`.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path

from meshwright.errors import AllocationError, did_you_mean
from meshwright.features.allocate.problem.buffer import Buffer, as_buffers
from meshwright.plain import read_text

_REQUIRED = ("id", "lower", "upper", "size")
_OPTIONAL = ("alignment", "offset", "gaps")
_SPELLINGS = {
    "buffer": "id", "buffer_id": "id", "begin": "lower", "start": "lower", "end": "upper",
}  # fmt: skip


def read_buffers(path: str | Path) -> tuple[Buffer, ...]:
    """The buffers of a CSV file."""
    return parse_buffers(read_text(Path(path), AllocationError, "a CSV"), str(path))


def parse_buffers(text: str, source: str = "CSV") -> tuple[Buffer, ...]:
    r"""The buffers of a CSV text; `source` names it in messages.

    >>> parse_buffers("id,lower,upper,size\nx,0,3,8")[0].size
    8
    """
    reader = csv.reader(io.StringIO(text))
    try:
        rows = [(reader.line_num, row) for row in reader if row]
    except csv.Error as error:
        raise AllocationError(f"{source}, line {reader.line_num}: {error}") from None
    if not rows:
        raise AllocationError(f"{source} is empty: its first line must be {_header()}")
    names, addend = _columns(source, rows[0][1])
    buffers: list[Buffer] = []
    for line, row in rows[1:]:
        where = f"{source}, line {line}"
        if len(row) != len(names):
            raise AllocationError(
                f"{where} has {len(row)} fields, the header has {len(names)}"
            )
        fields = dict(zip(names, (field.strip() for field in row), strict=True))
        buffers.append(_buffer(where, fields, addend))
    try:
        return as_buffers(buffers)
    except AllocationError as error:
        raise AllocationError(f"{source}: {error}") from None


def format_buffers(
    buffers: Sequence[Buffer], offsets: Sequence[int | None] | None = None
) -> str:
    """The CSV text of buffers, with offsets if they are given or if any is fixed."""
    shown = [b.offset for b in buffers] if offsets is None else list(offsets)
    with_offset = offsets is not None or any(o is not None for o in shown)
    with_alignment = any(b.alignment != 1 for b in buffers)
    with_gaps = any(b.gaps for b in buffers)
    wanted = (with_alignment, with_offset, with_gaps)
    names = [*_REQUIRED, *(n for n, w in zip(_OPTIONAL, wanted, strict=True) if w)]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    for buffer, offset in zip(buffers, shown, strict=True):
        values = {
            "id": buffer.id,
            "lower": buffer.lower,
            "upper": buffer.upper,
            "size": buffer.size,
            "alignment": buffer.alignment,
            "offset": "" if offset is None else offset,
            "gaps": " ".join(f"{a}-{b}" for a, b in buffer.gaps),
        }
        writer.writerow([values[name] for name in names])
    return out.getvalue()


def _header() -> str:
    return f"{','.join(_REQUIRED)}, optionally with {', '.join(_OPTIONAL)}"


def _columns(source: str, row: Sequence[str]) -> tuple[list[str], int]:
    """The names of a CSV's columns, and what to add to its end times.

    The number is 1 if the column `end` names the last live time, else 0.
    """
    given = [name.strip() for name in row]
    names = [_SPELLINGS.get(name, name) for name in given]
    known = (*_REQUIRED, *_OPTIONAL)
    for name in names:
        if name not in known:
            raise AllocationError(
                f"{source}: column {name!r} is unknown{did_you_mean(name, known)}; the "
                f"first line must be {_header()}"
            )
        if names.count(name) > 1:
            raise AllocationError(f"{source}: column {name!r} is there twice")
    missing = [name for name in _REQUIRED if name not in names]
    if missing:
        raise AllocationError(
            f"{source} has no column {', '.join(missing)}: its first line must be "
            f"{_header()}"
        )
    return names, int("end" in given)


def _buffer(where: str, fields: Mapping[str, str], addend: int) -> Buffer:
    offset = fields.get("offset", "")
    try:
        return Buffer(
            fields["id"],
            _integer(where, "lower", fields["lower"]),
            _integer(where, "upper", fields["upper"]) + addend,
            _integer(where, "size", fields["size"]),
            _integer(where, "alignment", fields.get("alignment") or "1"),
            _integer(where, "offset", offset) if offset else None,
            tuple(_gap(where, text, addend) for text in fields.get("gaps", "").split()),
        )
    except AllocationError as error:
        text = str(error)
        raise AllocationError(
            text if text.startswith(where) else f"{where}: {text}"
        ) from None


def _integer(where: str, name: str, text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > 19:
        raise AllocationError(f"{where}: {name} is {text!r}, not a whole number")
    return int(text)


def _gap(where: str, text: str, addend: int) -> tuple[int, int]:
    if "@" in text:
        raise AllocationError(
            f"{where}: gap {text!r} keeps a window of offsets, which is not supported; "
            "split the buffer into two with fixed offsets, or leave the window out"
        )
    lower, dash, upper = text.partition("-")
    if not dash:
        raise AllocationError(f"{where}: gap {text!r} must have the form 3-5")
    return _integer(where, "gap", lower), _integer(where, "gap", upper) + addend
