"""The choice of a grid: few cells, in which macros at cell centres waste little."""

import math

import numpy as np

from meshwright.features.codesign.floorplan.netlist.canvas import Canvas
from meshwright.search.arrays import Floats, Ints
from meshwright.search.compiled import compiled

_SIDES = range(10, 100)
"""Columns and rows that are tried."""

_LEAST_CELLS, _MOST_CELLS = 500, 2500
_MOST_ASPECT = 1.5
_SLACK = 0.05
"""Share of the best metric that a smaller grid may lose."""

_EMPTY = 1e-5
"""Share of a cell below which a macro does not use it."""


def choose_grid(
    canvas: Canvas, widths: Floats, heights: Floats
) -> tuple[int, int] | None:
    """Columns and rows for macros of these sizes; `None` if no grid holds them.

    The published rule (MacroPlacement's notes on Circuit Training): macros are packed by
    falling area, each at the first cell centre, row by row, where it fits. A grid's metric
    is its share of empty cells plus 2 less the shares of both axes wasted by rounding
    macros up to cells. Of the grids within 5 % of the best, the one of fewest cells.
    """
    order = np.argsort(-widths * heights, kind="stable")
    widths, heights = widths[order], heights[order]
    metrics: dict[tuple[int, int], float] = {}
    for rows in _SIDES:
        for columns in _SIDES:
            width, height = canvas.width / columns, canvas.height / rows
            aspect = max(width / height, height / width)
            if aspect > _MOST_ASPECT or not (
                _LEAST_CELLS <= rows * columns <= _MOST_CELLS
            ):
                continue
            used = _pack(widths, heights, columns, rows, width, height)
            if used >= 0:
                metrics[columns, rows] = (
                    (1 - used / (rows * columns))
                    + _fill(widths, width)
                    + _fill(heights, height)
                )
    if not metrics:
        return None
    least = (1 - _SLACK) * max(metrics.values())
    good = [grid for grid, metric in metrics.items() if metric >= least]
    return min(good, key=lambda grid: (math.prod(grid), -metrics[grid]))


def _fill(sizes: Floats, cell: float) -> float:
    """The share of the cells that macros take along one axis which they fill."""
    taken = float((np.ceil(sizes / cell - 1e-9) * cell).sum())
    return float(sizes.sum()) / taken if taken else 1.0


@compiled
def _pack(
    widths: Floats,
    heights: Floats,
    columns: int,
    rows: int,
    width: float,
    height: float,
) -> int:
    """The number of cells that packed macros use; -1 if a macro finds no place."""
    count = len(widths)
    x, y = np.zeros(count), np.zeros(count)
    used: Ints = np.zeros(columns * rows, np.int64)
    cell = 0
    for macro in range(count):
        half_w, half_h = widths[macro] / 2, heights[macro] / 2
        is_same = macro > 0 and (
            widths[macro] == widths[macro - 1] and heights[macro] == heights[macro - 1]
        )
        cell = cell if is_same else 0  # an equal macro finds no earlier place
        while cell < columns * rows:
            x[macro] = (cell % columns + 0.5) * width
            y[macro] = (cell // columns + 0.5) * height
            fits = half_w <= x[macro] <= columns * width - half_w and (
                half_h <= y[macro] <= rows * height - half_h
            )
            other = 0
            while fits and other < macro:
                fits = abs(x[macro] - x[other]) >= half_w + widths[other] / 2 or (
                    abs(y[macro] - y[other]) >= half_h + heights[other] / 2
                )
                other += 1
            if fits:
                break
            cell += 1
        if cell == columns * rows:
            return -1
        _mark(used, x[macro], y[macro], half_w, half_h, columns, rows, width, height)
    return int(used.sum())


@compiled
def _mark(  # noqa: PLR0913  numbers of an inner loop
    used: Ints,
    x: float,
    y: float,
    half_w: float,
    half_h: float,
    columns: int,
    rows: int,
    width: float,
    height: float,
) -> None:
    """Note the cells of which a macro covers more than a trace."""
    for row in range(
        int((y - half_h) / height), min(rows, int((y + half_h) / height) + 1)
    ):
        high = min(y + half_h, (row + 1) * height) - max(y - half_h, row * height)
        first, last = int((x - half_w) / width), int((x + half_w) / width)
        for column in range(first, min(columns, last + 1)):
            wide = min(x + half_w, (column + 1) * width) - max(
                x - half_w, column * width
            )
            if wide > 0 and high > 0 and wide * high >= _EMPTY * width * height:
                used[row * columns + column] = 1
