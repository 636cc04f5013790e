"""Routes of nets through the grid, as both public evaluators lay them.

A net is reduced to the distinct cells of its ends. A straight run of wires is two changes:
one at its first cell, one behind its last; sums along the line then give the use of each
cell. So a route costs the same however long it is.
"""

import numpy as np
from numpy.typing import NDArray

from meshwright.features.codesign.floorplan.costs.tables import Cells, Tables
from meshwright.search.arrays import Floats
from meshwright.search.compiled import compiled_in_place

type Runs = NDArray[np.float64]
"""Changes of use along each line of the grid, [lines, cells + 1]."""


@compiled_in_place
def add_run(runs: Runs, line: int, first: int, last: int, tracks: float) -> None:
    """Use `tracks` wires from the lesser to the greater of two cells of a line.

    The greater cell itself is not used.
    """
    if first > last:
        first, last = last, first
    runs[line, first] += tracks
    runs[line, last] -= tracks


@compiled_in_place
def add_pair(
    across: Runs,
    up: Runs,
    source: tuple[int, int],
    sink: tuple[int, int],
    tracks: float,
) -> None:
    """Route two cells: along the row of the source, then the column of the sink.

    A cell is a pair of its column and its row.
    """
    add_run(across, source[1], source[0], sink[0], tracks)
    add_run(up, sink[0], source[1], sink[1], tracks)


@compiled_in_place
def add_triple(
    across: Runs,
    up: Runs,
    a: tuple[int, int],
    b: tuple[int, int],
    c: tuple[int, int],
    tracks: float,
) -> None:
    """Route three cells, whichever is the source."""
    if a > b:
        a, b = b, a
    if b > c:
        b, c = c, b
    if a > b:
        a, b = b, a
    if a[0] < b[0] < c[0] and min(a[1], c[1]) < b[1] < max(a[1], c[1]):
        add_run(across, a[1], a[0], b[0], tracks)
        add_run(across, b[1], b[0], c[0], tracks)
        add_run(up, b[0], a[1], b[1], tracks)
        add_run(up, c[0], b[1], c[1], tracks)
    elif b[0] == c[0] and a[0] < b[0] and a[1] < min(b[1], c[1]):
        add_run(across, a[1], a[0], b[0], tracks)
        add_run(up, b[0], a[1], max(b[1], c[1]), tracks)
    elif b[1] == c[1]:
        add_run(across, a[1], a[0], b[0], tracks)
        add_run(across, b[1], b[0], c[0], tracks)
        add_run(up, b[0], a[1], b[1], tracks)
    else:
        _add_t(across, up, a, b, c, tracks)


@compiled_in_place
def _add_t(
    across: Runs,
    up: Runs,
    a: tuple[int, int],
    b: tuple[int, int],
    c: tuple[int, int],
    tracks: float,
) -> None:
    """Route three cells in order of columns along the row of the middle one by rows."""
    left, right = a[0], c[0]
    if (a[1], a[0]) > (b[1], b[0]):
        a, b = b, a
    if (b[1], b[0]) > (c[1], c[0]):
        b, c = c, b
    if (a[1], a[0]) > (b[1], b[0]):
        a, b = b, a
    add_run(across, b[1], left, right, tracks)
    add_run(up, a[0], a[1], b[1], tracks)
    add_run(up, c[0], b[1], c[1], tracks)


@compiled_in_place
def add_net(
    tables: Tables,
    end_cell: Cells,
    grid: tuple[Runs, Runs, Cells, Cells],
    net: int,
    sign: float,
) -> None:
    """Add the route of one net to the grid, or with `sign` -1 take it away.

    end_cell: cell of each end, row by row.
    grid: changes of use along rows and along columns, scratch for distinct cells, and for
        each cell the number of the last call that met it; that of calls is the last entry.
    """
    across, up, cells, met = grid
    columns, count = tables.columns, 0
    met[-1] += 1
    for end in range(tables.ends_at[net], tables.ends_at[net + 1]):
        cell = end_cell[end]
        if met[cell] != met[-1]:
            met[cell] = met[-1]
            cells[count] = cell
            count += 1
    tracks = sign * tables.track_weight[net]
    source = (cells[0] % columns, cells[0] // columns)
    if count == 3:
        second = (cells[1] % columns, cells[1] // columns)
        third = (cells[2] % columns, cells[2] // columns)
        add_triple(across, up, source, second, third, tracks)
        return
    for i in range(1, count):
        sink = (cells[i] % columns, cells[i] // columns)
        add_pair(across, up, source, sink, tracks)


@compiled_in_place
def use_of_runs(runs: Runs, capacity: float, use: Floats) -> None:
    """Write the share of a cell's wires that runs take, line by line, into `use`."""
    lines, cells = runs.shape[0], runs.shape[1] - 1
    for line in range(lines):
        tracks = 0.0
        for cell in range(cells):
            tracks += runs[line, cell]
            use[line * cells + cell] = tracks / capacity


@compiled_in_place
def smooth(use: Floats, spread: Floats, lines: int, reach: int) -> None:
    """Spread the use of each cell evenly over the lines up to `reach` beside its own.

    use: [lines * cells], line by line; the result is in `spread`.
    """
    cells = len(use) // lines
    spread[:] = 0.0
    for line in range(lines):
        first, last = max(0, line - reach), min(lines - 1, line + reach)
        for cell in range(cells):
            share = use[line * cells + cell] / (last - first + 1)
            for other in range(first, last + 1):
                spread[other * cells + cell] += share
