"""Traces of requests to a cache, read from files of several forms.

A text file has one request per line, with the columns time, id, size and further numbers
(tags), separated by commas or spaces; or the id alone. A first line of names says which
column is which. Files of ids alone have requests of size 1 at the times 0, 1, 2 and so on.
Binary forms, chosen by name: "int32-big" (big-endian 32-bit ids) and "uint32-little"
(little-endian 32-bit ids). Every form may be compressed, as .gz or .xz.
"""

import contextlib
import gzip
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from meshwright.errors import PolicyError, did_you_mean

_BINARY = {"int32-big": ">i4", "uint32-little": "<u4"}

_UNPACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.decompress,
    ".xz": lzma.decompress,
}

_MARKERS = ("*", "#")
"""First characters of lines that are no requests."""

type Changed = Literal["refuse", "separate"]
"""What to do with an id that has several sizes: refuse the trace, or count each pair of
an id and a size as an object of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """Requests in the order of time, with the objects numbered from 0.

    ids: number of the object that each request asks for, below `objects`.
    sizes: bytes of each request's object.
    times: when each request came, in the trace's own unit.
    tags: further numbers of each request, one row per request.
    name: what reports call the trace.
    """

    ids: np.ndarray
    sizes: np.ndarray
    times: np.ndarray
    tags: np.ndarray
    name: str = field(default="trace")

    @property
    def objects(self) -> int:
        """Number of different objects."""
        return int(self.ids.max()) + 1

    @property
    def working_set(self) -> int:
        """Bytes of all objects together."""
        of_objects = np.zeros(self.objects, np.int64)
        of_objects[self.ids] = self.sizes
        return int(of_objects.sum())

    def __str__(self) -> str:
        return (
            f"{self.name}: {len(self.ids):,} requests for {self.objects:,} objects of"
            f" {self.working_set:,} bytes"
        )

    def following(self) -> np.ndarray:
        """The request that asks for the same object next; `len(ids)` if none does."""
        number = len(self.ids)
        order = np.argsort(self.ids, kind="stable")
        same = self.ids[order][1:] == self.ids[order][:-1]
        out = np.full(number, number, np.int64)
        out[order[:-1][same]] = order[1:][same]
        return out


def trace(
    ids: ArrayLike,
    sizes: ArrayLike | None = None,
    times: ArrayLike | None = None,
    tags: ArrayLike | None = None,
    *,
    changed: Changed = "refuse",
    name: str = "trace",
) -> Trace:
    """A trace of arrays: any ids, with sizes of 1 and times 0, 1, 2 if none are given."""
    raw = np.asarray(ids)
    if raw.ndim != 1 or not len(raw):
        raise PolicyError(f"{name} has no requests; wanted a list of ids, one or more")
    number = len(raw)
    size = np.ones(number, np.int64) if sizes is None else np.asarray(sizes)
    time = np.arange(number) if times is None else np.asarray(times)
    tag = np.zeros((number, 0)) if tags is None else np.asarray(tags, np.float64)
    for what, column in (("sizes", size), ("times", time), ("tags", tag)):
        if len(column) != number:
            raise PolicyError(f"{name} has {number} ids and {len(column)} {what}")
    _check_columns(size, time, name)
    size = size.astype(np.int64)
    _, dense = np.unique(raw, return_inverse=True)
    dense = _apart(dense, size, raw, changed, name)
    return Trace(dense.astype(np.int32), size, time, tag, name)


def read_trace(
    path: Path | str, *, form: str = "text", changed: Changed = "refuse"
) -> Trace:
    """Read a trace from a file.

    form: "text", or one of the binary forms "int32-big" and "uint32-little".
    changed: what to do with an id whose size changes.
    """
    path = Path(path)
    if form != "text" and form not in _BINARY:
        forms = ("text", *_BINARY)
        near = did_you_mean(form, forms)
        raise PolicyError(f"no form {form!r} of traces{near}; there are {forms}")
    try:
        data = _UNPACK.get(path.suffix, bytes)(path.read_bytes())
    except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
        raise PolicyError(f"cannot read {path}: {error}") from error
    if form == "text":
        columns = _text_columns(data, path)
        return trace(**columns, changed=changed, name=path.name)
    if len(data) % 4:
        raise PolicyError(
            f"{path} has {len(data)} bytes, which is no multiple of 4: it is cut off, or"
            f" not of the form {form}"
        )
    return trace(np.frombuffer(data, _BINARY[form]), name=path.name)


def _check_columns(size: np.ndarray, time: np.ndarray, name: str) -> None:
    """Refuse sizes and times that no cache can use, with the first bad request."""
    if not (np.isfinite(size).all() and (size == np.floor(size)).all()):
        raise PolicyError(f"{name} has sizes that are no whole numbers")
    bad = np.flatnonzero(size <= 0)
    if len(bad):
        raise PolicyError(
            f"request {bad[0] + 1} of {name} has size {size[bad[0]]:g}; sizes are bytes,"
            f" 1 or more ({len(bad)} requests are wrong)"
        )
    late = np.flatnonzero(time[1:] < time[:-1])
    if len(late):
        raise PolicyError(
            f"request {late[0] + 2} of {name} is earlier than the one before it; sort"
            f" the trace by time"
        )


def _apart(
    ids: np.ndarray, sizes: np.ndarray, raw: np.ndarray, changed: Changed, name: str
) -> np.ndarray:
    """The ids, with each size of one id as an object of its own if that is wanted."""
    first = np.zeros(ids.max() + 1, np.int64)
    first[ids[::-1]] = sizes[::-1]
    other = np.flatnonzero(sizes != first[ids])
    if not len(other):
        return ids
    if changed == "separate":
        pairs = np.stack([ids, sizes], 1)
        return np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
    at = other[0]
    raise PolicyError(
        f"request {at + 1} of {name} gives object {raw[at]} the size {sizes[at]}, which"
        f" was {first[ids[at]]} before; changed='separate' (--changed separate) counts"
        f" each pair of id and size as an object ({len(other)} requests change a size)"
    )


def _text_columns(data: bytes, path: Path) -> dict[str, np.ndarray]:
    """The columns of a text file, by the names of `trace`'s arguments."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise PolicyError(
            f"{path} is not text; a binary trace needs its form, one of {list(_BINARY)}"
        ) from error
    lines = [
        line
        for line in text.replace(",", " ").splitlines()
        if line.strip() and not line.lstrip().startswith(_MARKERS)
    ]
    if not lines:
        raise PolicyError(f"{path} has no requests")
    names = _names(lines[0], path)
    if names is not None:
        lines = lines[1:]
    width = len(lines[0].split()) if lines else 0
    if names is None:
        if width == 2:
            raise PolicyError(
                f"{path} has two columns; a first line names them, such as id,size"
            )
        names = ["id"] if width == 1 else ["time", "id", "size"]
    columns = {"ids": _column(lines, names.index("id"), str, path)}
    with contextlib.suppress(ValueError):
        columns["ids"] = columns["ids"].astype(np.int64)
    for what in ("time", "size"):
        if what in names:
            columns[f"{what}s"] = _column(lines, names.index(what), float, path)
    known = {names.index(each) for each in ("time", "id", "size") if each in names}
    rest = [k for k in range(width) if k not in known]
    if rest:
        columns["tags"] = np.stack([_column(lines, k, float, path) for k in rest], 1)
    return columns


def _column(lines: list[str], at: int, kind: type, path: Path) -> np.ndarray:
    """One column of the lines of a text file."""
    try:
        return np.loadtxt(lines, kind, usecols=at, ndmin=1, comments=None)
    except ValueError as error:
        raise PolicyError(f"{path} has a line that cannot be read: {error}") from error


def _names(line: str, path: Path) -> list[str] | None:
    """The names of the columns, if a first line has them."""
    words = line.lower().split()
    if "id" in words:
        return words
    if len(words) > 1 and not any(map(_is_number, words)):
        raise PolicyError(
            f"{path} names the columns {', '.join(words)}; wanted id, and possibly time,"
            f" size and tags"
        )
    return None


def _is_number(word: str) -> bool:
    """Whether a word of a file is a number."""
    try:
        float(word)
    except ValueError:
        return False
    return True
