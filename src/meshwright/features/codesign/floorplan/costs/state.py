"""The state of a placement that moves change: places, routes, covered cells, costs."""

from typing import NamedTuple

import numpy as np

from meshwright.features.codesign.floorplan.costs.grids import (
    add_area,
    add_blocked,
    copy_values,
    line_of,
    top_mean,
)
from meshwright.features.codesign.floorplan.costs.routes import (
    Runs,
    add_net,
    smooth,
    use_of_runs,
)
from meshwright.features.codesign.floorplan.costs.tables import TURNS, Cells, Tables
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled_in_place

_DENSEST, _FULLEST = 0.1, 0.05
"""Shares of the cells, and of their horizontal and vertical uses, that costs look at."""


class PlacementState(NamedTuple):
    """Places of B blocks and all that follows from them.

    x, y: centres, [B]. turn: matrix of the orientation, [B, 4].
    end_cell: cell of each end of a net. length: half perimeter of each net's box.
    grid: the arrays `across`, `up`, `area`, `blocked_across` and `blocked_up`, one after
        the other, and `saved` a copy of it from before the moves that may be undone.
    wires: sum of weight times length of all nets, and its saved value.
    logged_ends, logged_cells, logged_nets, logged_lengths: values from before these moves.
    logged: number of ends and of nets in the log.
    use, spread, kept, cells, met: scratch. hints: guesses of `top_mean`.
    """

    x: Floats
    y: Floats
    turn: Floats
    end_cell: Cells
    length: Floats
    grid: Floats
    saved: Floats
    across: Runs
    up: Runs
    area: Floats
    blocked_across: Floats
    blocked_up: Floats
    wires: Floats
    logged_ends: Ints
    logged_cells: Cells
    logged_nets: Ints
    logged_lengths: Floats
    logged: Ints
    use: Floats
    spread: Floats
    kept: Floats
    cells: Cells
    met: Cells
    density_hint: Floats
    congestion_hint: Floats


_LOG = 8
"""Moves between two commits for which the log has room, as multiples of all ends."""


def make_state(tables: Tables, placement: ChipPlacement) -> PlacementState:
    """The state of a placement, computed in full."""
    columns, rows, num_ends = tables.columns, tables.rows, len(tables.end_block)
    cells, num_nets = columns * rows, len(tables.wire_weight)
    shapes = [(rows, columns + 1), (columns, rows + 1), (cells,), (cells,), (cells,)]
    sizes = [int(np.prod(shape)) for shape in shapes]
    grid = np.zeros(sum(sizes))
    parts = np.split(grid, np.cumsum(sizes)[:-1])
    views = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    longest = int(np.diff(tables.touched_at).max(initial=1))
    state = PlacementState(
        placement.x.astype(np.float64),
        placement.y.astype(np.float64),
        np.array(
            [TURNS.get(o, TURNS["N"]) for o in placement.orientations], np.float64
        ),
        np.zeros(num_ends, np.int32),
        np.zeros(num_nets),
        grid,
        grid.copy(),
        *views,
        wires=np.zeros(2),
        logged_ends=np.zeros(_LOG * longest, np.int64),
        logged_cells=np.zeros(_LOG * longest, np.int32),
        logged_nets=np.zeros(_LOG * longest, np.int64),
        logged_lengths=np.zeros(_LOG * longest),
        logged=np.zeros(2, np.int64),
        use=np.zeros(2 * cells),
        spread=np.zeros(2 * cells),
        kept=np.zeros(2 * cells),
        cells=np.zeros(cells, np.int32),
        met=np.zeros(cells + 1, np.int32),
        density_hint=np.zeros(1),
        congestion_hint=np.zeros(1),
    )
    recompute(tables, state)
    return state


@compiled_in_place
def end_place(tables: Tables, state: PlacementState, end: int) -> tuple[float, float]:
    """The place of an end of a net, in microns."""
    block, dx, dy = tables.end_block[end], tables.end_x[end], tables.end_y[end]
    turn = state.turn
    x = state.x[block] + (turn[block, 0] * dx + turn[block, 1] * dy)
    y = state.y[block] + (turn[block, 2] * dx + turn[block, 3] * dy)
    return x, y


@compiled_in_place
def _end_cell(tables: Tables, state: PlacementState, end: int) -> int:
    """The cell of an end of a net; outside of the canvas the nearest one."""
    x, y = end_place(tables, state, end)
    column = line_of(x, tables.cell_width, tables.columns)
    return line_of(y, tables.cell_height, tables.rows) * tables.columns + column


@compiled_in_place
def _net_length(tables: Tables, state: PlacementState, net: int) -> float:
    """Half the perimeter of the box around a net's ends, in microns."""
    left = low = np.inf
    right = high = -np.inf
    for end in range(tables.ends_at[net], tables.ends_at[net + 1]):
        x, y = end_place(tables, state, end)
        left, right = min(left, x), max(right, x)
        low, high = min(low, y), max(high, y)
    return (right - left) + (high - low)


@compiled_in_place
def recompute(tables: Tables, state: PlacementState) -> None:
    """Compute everything anew from the places of the blocks."""
    state.grid[:] = 0.0
    state.wires[0] = 0.0
    grid = (state.across, state.up, state.cells, state.met)
    for end in range(len(tables.end_block)):
        state.end_cell[end] = _end_cell(tables, state, end)
    for net in range(len(tables.wire_weight)):
        add_net(tables, state.end_cell, grid, net, 1.0)
        state.length[net] = _net_length(tables, state, net)
        state.wires[0] += tables.wire_weight[net] * state.length[net]
    for block in range(len(tables.width)):
        _add_block(tables, state, block, 1.0)
    commit(state)


@compiled_in_place
def _add_block(tables: Tables, state: PlacementState, block: int, sign: float) -> None:
    place = (state.x[block], state.y[block])
    if tables.has_area[block]:
        add_area(tables, block, place, state.area, sign)
    if tables.is_hard[block]:
        blocked = (state.blocked_across, state.blocked_up)
        add_blocked(tables, block, place, blocked, sign)


@compiled_in_place
def commit(state: PlacementState) -> None:
    """Accept all moves since the last commit."""
    copy_values(state.grid, state.saved)
    state.wires[1] = state.wires[0]
    state.logged[:] = 0


@compiled_in_place
def take_back(state: PlacementState) -> None:
    """Undo the effects of all moves since the last commit, but for the blocks' places."""
    copy_values(state.saved, state.grid)
    state.wires[0] = state.wires[1]
    for i in range(state.logged[0] - 1, -1, -1):
        state.end_cell[state.logged_ends[i]] = state.logged_cells[i]
    for i in range(state.logged[1] - 1, -1, -1):
        state.length[state.logged_nets[i]] = state.logged_lengths[i]
    state.logged[:] = 0


@compiled_in_place
def shift(
    tables: Tables, state: PlacementState, block: int, x: float, y: float
) -> None:
    """Move a block, and update what it touches: its nets, routes and cells.

    At most four moves may lie between two commits.
    """
    _add_block(tables, state, block, -1.0)
    state.x[block], state.y[block] = x, y
    _add_block(tables, state, block, 1.0)
    update_nets(tables, state, block)


@compiled_in_place
def move_block(
    tables: Tables,
    state: PlacementState,
    weights: Floats,
    block: int,
    place: tuple[float, float],
) -> float:
    """Move a block for good; returns the new proxy."""
    shift(tables, state, block, place[0], place[1])
    commit(state)
    return proxy(tables, state, weights)


@compiled_in_place
def update_nets(tables: Tables, state: PlacementState, block: int) -> None:
    """Update lengths and routes of a block's nets after its ends have moved."""
    grid = (state.across, state.up, state.cells, state.met)
    last = tables.touched_at[block + 1]
    i = tables.touched_at[block]
    while i < last:
        net = int(tables.end_net[tables.touched[i]])
        is_removed = False
        while i < last and tables.end_net[tables.touched[i]] == net:
            end = int(tables.touched[i])
            cell = _end_cell(tables, state, end)
            if cell != state.end_cell[end]:
                if not is_removed:
                    add_net(tables, state.end_cell, grid, net, -1.0)
                    is_removed = True
                state.logged_ends[state.logged[0]] = end
                state.logged_cells[state.logged[0]] = state.end_cell[end]
                state.logged[0] += 1
                state.end_cell[end] = cell
            i += 1
        if is_removed:
            add_net(tables, state.end_cell, grid, net, 1.0)
        length = _net_length(tables, state, net)
        state.logged_nets[state.logged[1]] = net
        state.logged_lengths[state.logged[1]] = state.length[net]
        state.logged[1] += 1
        state.wires[0] += tables.wire_weight[net] * (length - state.length[net])
        state.length[net] = length


@compiled_in_place
def wirelength(tables: Tables, state: PlacementState) -> float:
    """The cost of wirelength."""
    return state.wires[0] * tables.wire_scale


@compiled_in_place
def density(state: PlacementState) -> float:
    """Half of the mean density of the densest tenth of the cells, at least one."""
    count = max(1, int(_DENSEST * len(state.area)))
    return 0.5 * top_mean(state.area, count, state.density_hint, state.kept)


@compiled_in_place
def write_use(tables: Tables, state: PlacementState) -> None:
    """Write the share of wires in use into `state.use`.

    First horizontal wires row by row, then vertical wires column by column.
    """
    cells = len(state.area)
    use_of_runs(state.across, tables.tracks_across, state.use[:cells])
    use_of_runs(state.up, tables.tracks_up, state.use[cells:])
    if tables.smoothing > 0:
        smooth(state.use[:cells], state.spread[:cells], tables.rows, tables.smoothing)
        smooth(
            state.use[cells:], state.spread[cells:], tables.columns, tables.smoothing
        )
        copy_values(state.spread, state.use)
    for i in range(cells):
        state.use[i] += state.blocked_across[i]
        state.use[cells + i] += state.blocked_up[i]


@compiled_in_place
def congestion(tables: Tables, state: PlacementState) -> float:
    """The mean of the largest 5 % of all horizontal and vertical uses, at least one."""
    write_use(tables, state)
    count = max(1, int(_FULLEST * len(state.use)))
    return top_mean(state.use, count, state.congestion_hint, state.kept)


@compiled_in_place
def proxy(tables: Tables, state: PlacementState, weights: Floats) -> float:
    """The weighted sum of wirelength, density and congestion."""
    return (
        weights[0] * wirelength(tables, state)
        + weights[1] * density(state)
        + weights[2] * congestion(tables, state)
    )
