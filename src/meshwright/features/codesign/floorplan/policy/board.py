"""Free cells of a macro, and what agents see of each cell, in compiled loops."""

import numpy as np
from numpy.typing import NDArray

from meshwright.features.codesign.floorplan.costs.grids import add_area
from meshwright.features.codesign.floorplan.costs.tables import Tables
from meshwright.features.codesign.floorplan.starts.room import Room
from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.compiled import compiled_in_place

_FAR = 16.0
"""Distance from the point of pull that agents see for half the canvas's circumference."""


@compiled_in_place
def centre_of(tables: Tables, cell: int) -> tuple[float, float]:
    """The centre of a cell, in microns; cells are numbered row by row from the bottom."""
    row, column = cell // tables.columns, cell % tables.columns
    return (column + 0.5) * tables.cell_width, (row + 0.5) * tables.cell_height


@compiled_in_place
def write_free(
    tables: Tables,
    room: Room,
    places: tuple[Floats, Floats],
    block: int,
    is_free: Bools,
) -> int:
    """Write whether the macro would be legal at each cell's centre; returns how many.

    places: x and y of all blocks; those without a place are far away. is_free: [cells].
    """
    xs, ys = places
    half_width = tables.width[block] / 2 + room.clearance
    half_height = tables.height[block] / 2 + room.clearance
    for cell in range(len(is_free)):
        x, y = centre_of(tables, cell)
        is_free[cell] = (
            half_width <= x <= tables.width_all - half_width
            and half_height <= y <= tables.height_all - half_height
        )
    for i in range(len(room.solid)):
        other = room.solid[i]
        if other == block:
            continue
        reach_x = half_width + tables.width[other] / 2
        reach_y = half_height + tables.height[other] / 2
        _close(
            tables,
            is_free,
            (xs[other] - reach_x, xs[other] + reach_x),
            (ys[other] - reach_y, ys[other] + reach_y),
        )
    for i in range(len(room.left)):
        _close(
            tables,
            is_free,
            (room.left[i] - half_width, room.right[i] + half_width),
            (room.bottom[i] - half_height, room.top[i] + half_height),
        )
    return int(np.sum(is_free))


@compiled_in_place
def _close(
    tables: Tables,
    is_free: Bools,
    across: tuple[float, float],
    up: tuple[float, float],
) -> None:
    """Close the cells whose centres lie strictly within a rectangle."""
    if across[1] < 0 or up[1] < 0:
        return
    for row in range(tables.rows):
        y = (row + 0.5) * tables.cell_height
        if up[0] < y < up[1]:
            for column in range(tables.columns):
                x = (column + 0.5) * tables.cell_width
                if across[0] < x < across[1]:
                    is_free[row * tables.columns + column] = False


@compiled_in_place
def write_all_free(
    tables: Tables,
    room: Room,
    places: tuple[Floats, Floats],
    block: int,
    free: Bools,
) -> None:
    """Write the free cells of a macro in each of E episodes into `free` [E, cells]."""
    for i in range(len(free)):
        write_free(tables, room, (places[0][i], places[1][i]), block, free[i])


@compiled_in_place
def put_macros(
    tables: Tables,
    block: int,
    cells: Ints,
    places: tuple[Floats, Floats],
    marks: tuple[Floats, Bools],
) -> None:
    """Place a macro at a cell in each of E episodes that are not stuck.

    places: x and y, [E, B]. marks: covered area, which is updated, and stuck episodes.
    """
    area, is_stuck = marks
    for i in range(len(cells)):
        if not is_stuck[i]:
            x, y = centre_of(tables, cells[i])
            places[0][i, block], places[1][i, block] = x, y
            add_area(tables, block, (x, y), area[i], 1.0)


@compiled_in_place
def write_maps(
    tables: Tables,
    points: Floats,
    marks: tuple[Bools, Floats],
    seen: NDArray[np.float32],
) -> None:
    """Write what an agent sees of each cell into `seen` [E, side, side, 3].

    points: where nets pull the current macro, [E, 2]. marks: free cells, covered area.
    """
    free, area = marks
    scale = _FAR / (tables.width_all + tables.height_all)
    for i in range(len(points)):
        for cell in range(tables.rows * tables.columns):
            x, y = centre_of(tables, cell)
            away = ((x - points[i, 0]) ** 2 + (y - points[i, 1]) ** 2) ** 0.5
            row, column = cell // tables.columns, cell % tables.columns
            seen[i, row, column, 0] = free[i, cell]
            seen[i, row, column, 1] = away * scale
            seen[i, row, column, 2] = area[i, cell]
