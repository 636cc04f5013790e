"""Seconds and bytes of states in columns, looked up in the tables of a model.

Each group's decisions make a code, which is found among those of its strategies. Values
with several readers are kept in the form that is cheapest for all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from meshwright.planner.columns.graph_columns import (
    FACTORS_AT,
    IS_REDUCED,
    VALUES_AT,
    Cells,
    Columns,
)
from meshwright.planner.columns.partial_values import PartialCache, num_groups, span
from meshwright.planner.columns.price_tables import (
    CUT_BITS,
    NO_SUM,
    SHIFT,
    SUM_BITS,
    PriceTables,
)
from meshwright.planner.columns.reduction_placement import place_reductions
from meshwright.planner.prices.strategy import ALL_REDUCE, KEEP_PARTIAL
from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.compiled import compiled_in_place


class EvaluationBuffers(NamedTuple):
    """Room to price one state.

    taken: [G, A]. handed: [V, A]. codes: of groups in the state priced last, [G].
    choices: of groups and views, [G + K]. curve: [T]. totals: of the forms of one view
    """

    taken: Ints
    handed: Bools
    codes: Ints
    choices: Ints
    curve: Floats
    totals: Floats


def new_buffers(columns: Columns, prices: PriceTables) -> EvaluationBuffers:
    """An empty one."""
    groups, axes = len(columns.groups) - 1, len(columns.axis_sizes)
    return EvaluationBuffers(
        np.zeros((groups, axes), np.int64),
        np.zeros((len(columns.values) - 1, axes), np.bool_),
        np.full(groups, -1, np.int64),
        np.zeros(groups + len(prices.forms), np.int64),
        np.zeros(prices.counts.shape[1]),
        np.zeros(int(prices.forms.max(initial=1))),
    )


@compiled_in_place
def price(
    columns: Columns,
    prices: PriceTables,
    cells: Cells,
    memory: PartialCache,
    desk: EvaluationBuffers,
) -> tuple[float, float]:
    """Seconds of a step, and bytes at its fullest moment; the desk tells by what."""
    place_reductions(columns, cells, memory, desk.taken, desk.handed)
    groups = num_groups(columns)
    choices = desk.choices
    total = 0.0
    for group in range(groups):
        code = code_at(columns, cells, desk, group)
        if code != desk.codes[group]:
            desk.codes[group] = code
            choices[group] = choice_of(prices, prices.kinds[group], code)
        total += float(prices.costs[prices.costs_at[group] + choices[group]])
    for link in range(len(prices.tables_at)):
        row, column = choices[prices.ends[link, 0]], choices[prices.ends[link, 1]]
        place = row * prices.widths[link] + column
        total += float(prices.tables[prices.tables_at[link] + place])
    for view in range(len(prices.forms)):
        total += evaluate_view(prices, desk, groups, view)
    return total, peak_bytes(prices, desk)


@compiled_in_place
def code_at(columns: Columns, cells: Cells, desk: EvaluationBuffers, group: int) -> int:
    """The code of what a state decides about a group."""
    code, groups = 0, num_groups(columns)
    has_value = len(span(columns.groups, group, VALUES_AT)) > 0
    value = columns.groups[group, VALUES_AT]
    for axis in range(len(columns.axis_sizes)):
        factor, rank, end = cells[group, axis], 0, NO_SUM
        is_taken = desk.taken[group, axis] >= 0
        is_open = is_taken
        if factor >= 0:
            rank = cells[groups + group, axis]
            place = columns.groups[group, FACTORS_AT] + factor
            is_open = columns.factors[place, IS_REDUCED] == 1
        if is_open and has_value:
            end = cells[2 * groups + value, axis]
            if end < 0:
                end = KEEP_PARTIAL if desk.handed[value, axis] else ALL_REDUCE
        code |= (4 * (factor + 1) + rank) << (SHIFT + CUT_BITS * axis)
        code |= (2 * (end - NO_SUM) + is_taken) << (SUM_BITS * axis)
    return code


@compiled_in_place
def choice_of(prices: PriceTables, kind: int, code: int) -> int:
    """The strategy of a code, or the first that cuts so; the first of all, else."""
    low, high = prices.codes_at[kind], prices.codes_at[kind + 1]
    at = find(prices.codes[low:high], code)
    if at >= 0:
        return int(prices.numbers[low + at])
    low, high = prices.cuts_at[kind], prices.cuts_at[kind + 1]
    at = find(prices.cuts[low:high], code >> SHIFT)
    return int(prices.firsts[low + at]) if at >= 0 else 0


@compiled_in_place
def find(numbers: Ints, number: int) -> int:
    """Where a number stands in an ordered row, or -1."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < number:
            low = middle + 1
        elif numbers[middle] > number:
            high = middle
        else:
            return middle
    return -1


@compiled_in_place
def evaluate_view(
    prices: PriceTables, desk: EvaluationBuffers, groups: int, view: int
) -> float:
    """Seconds of the form of a value that is cheapest for its maker and readers."""
    width = prices.forms[view]
    totals = desk.totals
    totals[:width] = 0.0
    for link in range(prices.view_links_at[view], prices.view_links_at[view + 1]):
        row = desk.choices[prices.others[link]]
        start = prices.view_tables_at[link] + row * width
        for form in range(width):
            totals[form] += prices.tables[start + form]
    best = 0
    for form in range(1, width):
        if totals[form] < totals[best]:
            best = form
    desk.choices[groups + view] = best
    return totals[best]


@compiled_in_place
def peak_bytes(prices: PriceTables, desk: EvaluationBuffers) -> float:
    """Bytes at the fullest moment."""
    curve, choices = desk.curve, desk.choices
    curve[:] = 0.0
    for i in range(len(prices.held_at)):
        size = prices.tables[prices.held_at[i] + choices[prices.held_groups[i]]]
        for moment in range(len(curve)):
            curve[moment] += prices.counts[i, moment] * size
    for copy in range(len(prices.extra_at)):
        row, column = choices[prices.copied[copy, 0]], choices[prices.copied[copy, 1]]
        place = row * prices.extra_widths[copy] + column
        size = prices.tables[prices.extra_at[copy] + place]
        if size > 0:
            for moment in range(len(curve)):
                curve[moment] += prices.copies[copy, moment] * size
    fullest = 0.0
    for size in curve:
        fullest = max(fullest, size)
    return fullest
