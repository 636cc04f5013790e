"""Checks and conversions of the index arrays of sparse matrices, in linear time.

Compiled code follows these arrays without looking, so a column that is out of range
would end the process.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from meshwright.search.compiled import compiled, compiled_in_place

SORTED, UNSORTED, CORRUPT = 0, 1, 2
"""Canonical indices, indices in range that are unsorted or double, and all others."""


@compiled_in_place
def row_state(
    signed_starts: Any,
    signed_columns: Any,
    num_columns: int,
    num_elements: int,
    wants_order: bool,
) -> int:
    """The state of compressed rows: `SORTED`, `UNSORTED` or `CORRUPT`.

    signed_starts: where each row begins in `signed_columns`, [rows + 1]; both are
        integers of 32 bits, read as unsigned ones, so that negative numbers are large.
    num_elements: the number of elements that are there.
    wants_order: else the order of columns is not looked at.
    """
    starts, columns = signed_starts.view(np.uint32), signed_columns.view(np.uint32)
    rows = len(starts) - 1
    stored = starts[rows]
    most = min(len(columns), num_elements)
    if starts[0] != 0 or stored > most or _has_fall(starts):
        return 2
    if not _is_below(columns[:stored], np.uint32(num_columns)):
        return 2
    return 0 if not wants_order or _is_ascending(starts, columns[:stored]) else 1


@compiled_in_place
def element_state(
    signed_rows: Any,
    signed_columns: Any,
    num_rows: int,
    num_columns: int,
    num_elements: int,
) -> int:
    """The state of elements with a row and a column each, integers of 32 bits.

    `UNSORTED` if they are not in the order of rows; each row may be in any order.
    num_elements: the number of elements that are there.
    """
    rows, columns = signed_rows.view(np.uint32), signed_columns.view(np.uint32)
    if len(rows) > min(len(columns), num_elements) or not (
        _is_below(rows, np.uint32(num_rows))
        and _is_below(columns, np.uint32(num_columns))
    ):
        return 2
    return 1 if _has_fall(rows) else 0


@compiled
def narrowed(numbers: Any) -> Any:
    """Unsigned integers of 64 bits in 32 bits; those that do not fit become the largest."""
    found = np.empty(len(numbers), np.uint32)
    for p in range(len(numbers)):
        found[p] = min(numbers[p], np.uint64(0xFFFFFFFF))
    return found


@compiled_in_place
def _has_fall(numbers: Any) -> bool:
    falls = False
    for p in range(1, len(numbers)):
        falls |= numbers[p] < numbers[p - 1]
    return falls


@compiled_in_place
def _is_below(numbers: Any, limit: Any) -> bool:
    is_outside = False
    for p in range(len(numbers)):
        is_outside |= numbers[p] >= limit
    return not is_outside


@compiled_in_place
def _is_ascending(starts: Any, columns: Any) -> bool:
    """Whether the columns of each row ascend, so that none is there twice."""
    descents = np.uint32(0)
    for p in range(1, len(columns)):
        descents += np.uint32(columns[p] <= columns[p - 1])
    for i in range(1, len(starts) - 1):  # from a row to the next, columns may descend
        p = starts[i]
        if starts[i - 1] < p < len(columns):
            descents -= np.uint32(columns[p] <= columns[p - 1])
    return descents == 0


@compiled
def starts_of_rows(rows: Any, num_rows: int) -> Any:
    """The starts of rows among elements in the order of rows, [rows + 1]."""
    starts = np.zeros(num_rows + 1, np.int32)
    for p in range(len(rows)):
        starts[rows[p] + 1] = p + 1  # the last element of a row is written last
    for i in range(num_rows):
        starts[i + 1] = max(starts[i], starts[i + 1])
    return starts


@compiled
def grouped_by_row(rows: Any, columns: Any, data: Any, num_rows: int) -> Any:
    """The starts of rows, and columns and elements in the order of rows."""
    starts = np.zeros(num_rows + 1, np.int32)
    for row in rows:
        starts[row + 1] += 1
    for i in range(num_rows):
        starts[i + 1] += starts[i]
    following = starts[:-1].copy()
    moved_columns = np.empty(len(columns), np.int32)
    moved_data = np.empty_like(data)
    for p in range(len(rows)):
        place = following[rows[p]]
        following[rows[p]] += 1
        moved_columns[place] = columns[p]
        moved_data[place] = data[p]
    return starts, moved_columns, moved_data


def fault_of_rows(starts: Any, columns: Any, num_columns: int) -> str:
    """What is wrong with corrupt compressed rows."""
    steps = np.diff(starts.astype(np.int64))
    if starts[0] != 0:
        return f"indptr begins with {starts[0]}; wanted 0"
    if steps.min(initial=0) < 0:
        row = int(np.argmax(steps < 0))
        return f"indptr falls from {starts[row]} to {starts[row + 1]} at row {row}"
    if starts[-1] > len(columns):
        return f"indptr ends with {starts[-1]}, and there are {len(columns)} indices"
    return fault_of_index("index", columns[: starts[-1]], num_columns)


def fault_of_index(name: str, given: Any, extent: int) -> str:
    """The first index that is out of range; "" if all are in range."""
    is_outside = (given < 0) | (given >= extent)
    if not is_outside.any():
        return ""
    place = int(np.argmax(is_outside))
    hint = "; indices count from 0" if given.max() == extent and given.min() > 0 else ""
    return (
        f"{name} {given[place]} of element {place} is out of range; wanted 0 to "
        f"{extent - 1}{hint}"
    )
