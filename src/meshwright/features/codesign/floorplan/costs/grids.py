"""Cells of the grid that blocks cover: their density, and the wires that macros take."""

import math

from meshwright.features.codesign.floorplan.costs.tables import Tables
from meshwright.search.arrays import Floats
from meshwright.search.compiled import compiled_in_place

_WHOLE = 1e-5
"""Microns by which a macro may miss a whole row or column of cells (public evaluators)."""


@compiled_in_place
def line_of(place: float, size: float, lines: int) -> int:
    """The row or column at a coordinate; outside of the canvas the nearest one."""
    return min(max(math.floor(place / size), 0), lines - 1)


@compiled_in_place
def covered(low: float, high: float, line: int, size: float) -> float:
    """Microns of a line of cells that lie between two coordinates."""
    return max(0.0, min(high, (line + 1) * size) - max(low, line * size))


@compiled_in_place
def add_area(
    tables: Tables, block: int, place: tuple[float, float], area: Floats, sign: float
) -> None:
    """Add the area of a block to the cells that it covers, as shares of a cell.

    Nothing is added outside of the canvas.
    """
    x, y = place
    cell_width, cell_height = tables.cell_width, tables.cell_height
    left, right = x - tables.width[block] / 2, x + tables.width[block] / 2
    low, high = y - tables.height[block] / 2, y + tables.height[block] / 2
    scale = sign / (cell_width * cell_height)
    first = line_of(left, cell_width, tables.columns)
    last = line_of(right, cell_width, tables.columns)
    for row in range(
        line_of(low, cell_height, tables.rows),
        line_of(high, cell_height, tables.rows) + 1,
    ):
        share = covered(low, high, row, cell_height) * scale
        for column in range(first, last + 1):
            area[row * tables.columns + column] += share * covered(
                left, right, column, cell_width
            )


@compiled_in_place
def _last_counted(low: float, high: float, size: float, lines: int) -> int:
    """The last row (column) of cells in which a macro takes vertical (horizontal) wires.

    A macro that covers several rows and the first or last of them only in part takes
    nothing in the last.
    """
    first, last = line_of(low, size, lines), line_of(high, size, lines)
    if first == last:
        return last
    is_part = abs(covered(low, high, first, size) - size) > _WHOLE
    is_part |= abs(covered(low, high, last, size) - size) > _WHOLE
    return last - 1 if is_part else last


@compiled_in_place
def add_blocked(
    tables: Tables,
    block: int,
    place: tuple[float, float],
    blocked: tuple[Floats, Floats],
    sign: float,
) -> None:
    """Add the wires that a macro takes, as shares of a cell's.

    blocked: horizontal wires row by row, and vertical wires column by column.
    """
    x, y = place
    across, up = blocked
    columns, rows = tables.columns, tables.rows
    cell_width, cell_height = tables.cell_width, tables.cell_height
    left, right = x - tables.width[block] / 2, x + tables.width[block] / 2
    low, high = y - tables.height[block] / 2, y + tables.height[block] / 2
    first_column = line_of(left, cell_width, columns)
    last_column = line_of(right, cell_width, columns)
    first_row, last_row = (
        line_of(low, cell_height, rows),
        line_of(high, cell_height, rows),
    )
    counted_column = _last_counted(left, right, cell_width, columns)
    counted_row = _last_counted(low, high, cell_height, rows)
    across_scale = sign * tables.macro_across / tables.tracks_across
    up_scale = sign * tables.macro_up / tables.tracks_up
    for row in range(first_row, last_row + 1):
        share = covered(low, high, row, cell_height) * across_scale
        for column in range(first_column, counted_column + 1):
            if covered(left, right, column, cell_width) > 0:
                across[row * columns + column] += share
    for column in range(first_column, last_column + 1):
        share = covered(left, right, column, cell_width) * up_scale
        for row in range(first_row, counted_row + 1):
            if covered(low, high, row, cell_height) > 0:
                up[column * rows + row] += share


@compiled_in_place
def copy_values(source: Floats, target: Floats) -> None:
    """Copy an array into the beginning of another one."""
    for i in range(len(source)):
        target[i] = source[i]


@compiled_in_place
def top_mean(values: Floats, count: int, hint: Floats, kept: Floats) -> float:
    """The mean of the `count` largest values, by selection.

    hint: a guess of the least of these values, which is updated. kept: scratch.
    """
    size, floor = 0, hint[0]
    for i in range(len(values)):
        if values[i] > floor:
            kept[size] = values[i]
            size += 1
    if size < count:
        size = len(values)
        copy_values(values, kept)
    _select(kept, size, count)
    total, least = 0.0, kept[0]
    for i in range(count):
        total += kept[i]
        least = min(least, kept[i])
    hint[0] = least - 0.02 * abs(least)
    return total / count


@compiled_in_place
def _select(values: Floats, size: int, count: int) -> None:
    """Move the `count` largest of the first `size` values to the front (quickselect)."""
    first, last = 0, size - 1
    while first < last:
        pivot = values[(first + last) // 2]
        i, j = first, last
        while i <= j:
            while values[i] > pivot:
                i += 1
            while values[j] < pivot:
                j -= 1
            if i <= j:
                values[i], values[j] = values[j], values[i]
                i += 1
                j -= 1
        if count - 1 <= j:
            last = j
        elif count >= i + 1:
            first = i
        else:
            return
