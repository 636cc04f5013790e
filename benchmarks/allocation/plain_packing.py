"""CP-SAT on the allocation problem: a baseline for the search.

The model is the usual one: rectangles that do not overlap, and two redundant cumulative
constraints.
"""

from collections.abc import Sequence

from ortools.sat.python import cp_model

from meshwright.features.allocate import Buffer


def packed_by_cp_sat(
    buffers: Sequence[Buffer], capacity: int, seconds: float
) -> list[int] | None:
    """Offsets within the capacity, or `None` if there are none or not in time."""
    model = cp_model.CpModel()
    rows, columns, sizes, lifetimes = [], [], [], []
    offsets: list[cp_model.LinearExprT] = []
    for buffer in buffers:
        if not buffer.size:
            offsets.append(buffer.offset or 0)
            continue
        if buffer.offset is None:
            most = (capacity - buffer.size) // buffer.alignment
            offset = buffer.alignment * model.new_int_var(0, most, buffer.id)
        else:
            offset = buffer.offset
        offsets.append(offset)
        for lower, upper in buffer.spans:
            rows.append(model.new_fixed_size_interval_var(offset, buffer.size, ""))
            columns.append(model.new_fixed_size_interval_var(lower, upper - lower, ""))
            sizes.append(buffer.size)
            lifetimes.append(upper - lower)
    model.add_no_overlap_2d(columns, rows)
    model.add_cumulative(columns, sizes, capacity)
    model.add_cumulative(rows, lifetimes, max(b.upper for b in buffers))
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = seconds
    solver.parameters.num_workers = 2
    if solver.solve(model) not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    return [solver.value(offset) for offset in offsets]
