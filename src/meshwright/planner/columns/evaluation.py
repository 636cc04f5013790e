"""Evaluation of a partitioning state: predicted seconds of a step and peak memory.

Both are looked up in tables of the planner's integer program. First, `place_reductions`
decides which partial sums stay partial until their readers; the others are reduced by
the op that computes them. Then the decisions about each group (class of equal ops) are
packed into an integer code, which is looked up among the codes of the group's
strategies. A value with several readers is kept in the form (a sharding) that is
cheapest for all of them together.
"""

from typing import NamedTuple

import numpy as np

from meshwright.planner.columns.graph_columns import Columns
from meshwright.planner.columns.partial_reads import place_reductions
from meshwright.planner.columns.partial_values import PartialCache
from meshwright.planner.columns.price_tables import (
    CUT_BITS,
    NO_SUM,
    SHIFT,
    SUM_BITS,
    PriceTables,
)
from meshwright.planner.columns.state_cells import Cells, num_groups, span
from meshwright.planner.strategies.strategy import ALL_REDUCE, KEEP_PARTIAL
from meshwright.search.arrays import Bools, Floats, Ints
from meshwright.search.compiled import compiled_in_place


class EvaluationBuffers(NamedTuple):
    """Scratch arrays of `evaluate`, and the choices of the last evaluation.

    There are G groups (classes of equal ops), V values, A mesh axes, K values with
    several readers, and T moments of a step.
    partial_sets, left: results of `place_reductions`, [G, A] and [V, A].
    codes: code of each group's decisions, [G].
    choices: number of each group's strategy, then of each shared value's form (the
        sharding in which it is kept), [G + K].
    curve: bytes in memory at each moment, [T].
    totals: seconds of each form of one shared value.
    """

    partial_sets: Ints
    left: Bools
    codes: Ints
    choices: Ints
    curve: Floats
    totals: Floats


def new_buffers(columns: Columns, prices: PriceTables) -> EvaluationBuffers:
    """Scratch arrays for evaluations with the columns and tables of one program."""
    groups, axes = len(columns.blocked), len(columns.axis_sizes)
    return EvaluationBuffers(
        np.zeros((groups, axes), np.int64),
        np.zeros((len(columns.makers), axes), np.bool_),
        np.full(groups, -1, np.int64),
        np.zeros(groups + len(prices.forms), np.int64),
        np.zeros(prices.counts.shape[1]),
        np.zeros(int(prices.forms.max(initial=1))),
    )


@compiled_in_place
def evaluate(
    columns: Columns,
    prices: PriceTables,
    cells: Cells,
    cache: PartialCache,
    buffers: EvaluationBuffers,
) -> tuple[float, float]:
    """Predicted seconds of a step, and its peak memory in bytes, of a state.

    cells: the state, as an array of decisions.

    The strategies that have these seconds and bytes are written into `buffers.choices`.
    """
    place_reductions(columns, cells, cache, buffers.partial_sets, buffers.left)
    groups = num_groups(columns)
    choices = buffers.choices
    total = 0.0
    for group in range(groups):
        code = code_at(columns, cells, buffers, group)
        if code != buffers.codes[group]:
            buffers.codes[group] = code
            choices[group] = choice_of(prices, prices.kinds[group], code)
        total += float(prices.costs[prices.costs_at[group] + choices[group]])
    for link in range(len(prices.tables_at)):
        row, column = choices[prices.ends[link, 0]], choices[prices.ends[link, 1]]
        place = row * prices.widths[link] + column
        total += float(prices.tables[prices.tables_at[link] + place])
    for view in range(len(prices.forms)):
        total += add_shared_value(prices, buffers, groups, view)
    return total, peak_bytes(prices, buffers)


@compiled_in_place
def code_at(
    columns: Columns, cells: Cells, buffers: EvaluationBuffers, group: int
) -> int:
    """The integer code of a state's decisions about a group of equal ops.

    It equals `code_of` the strategy that makes these decisions.
    """
    code, groups = 0, num_groups(columns)
    has_value = len(span(columns.values_at, group)) > 0
    value = columns.values_at[group]
    for axis in range(len(columns.axis_sizes)):
        factor, rank, end = cells[group, axis], 0, NO_SUM
        reads_partial = buffers.partial_sets[group, axis] >= 0
        is_summed = reads_partial
        if factor >= 0:
            rank = cells[groups + group, axis]
            place = columns.factors_at[group] + factor
            is_summed = columns.is_reduced[place] == 1
        if is_summed and has_value:
            end = cells[2 * groups + value, axis]
            if end < 0:
                end = KEEP_PARTIAL if buffers.left[value, axis] else ALL_REDUCE
        code |= (4 * (factor + 1) + rank) << (SHIFT + CUT_BITS * axis)
        code |= (2 * (end - NO_SUM) + reads_partial) << (SUM_BITS * axis)
    return code


@compiled_in_place
def choice_of(prices: PriceTables, kind: int, code: int) -> int:
    """The number of the strategy whose code is `code`.

    kind: number of the list of strategies to search.

    If no strategy has the code, the first one is returned that splits the same factors,
    else number 0.
    """
    codes = prices.codes[prices.codes_at[kind] : prices.codes_at[kind + 1]]
    numbers = prices.numbers[prices.codes_at[kind] : prices.codes_at[kind + 1]]
    at = np.searchsorted(codes, code)
    if at < len(codes) and codes[at] == code:
        return numbers[at]
    cut = code >> SHIFT
    at = np.searchsorted(codes, cut << SHIFT)
    first = len(codes)
    while at < len(codes) and codes[at] >> SHIFT == cut:
        first = min(first, numbers[at])
        at += 1
    return first if first < len(codes) else 0


@compiled_in_place
def add_shared_value(
    prices: PriceTables, buffers: EvaluationBuffers, groups: int, view: int
) -> float:
    """Choose the cheapest form of a shared value, and return its seconds.

    A shared value has several readers; its form is the sharding in which it is kept for
    them. The seconds include resharding from the producer and to every reader.
    view: number of the shared value.
    """
    width = prices.forms[view]
    totals = buffers.totals
    totals[:width] = 0.0
    for link in range(prices.shared_pairs_at[view], prices.shared_pairs_at[view + 1]):
        row = buffers.choices[prices.others[link]]
        start = prices.shared_tables_at[link] + row * width
        for form in range(width):
            totals[form] += prices.tables[start + form]
    best = 0
    for form in range(1, width):
        if totals[form] < totals[best]:
            best = form
    buffers.choices[groups + view] = best
    return totals[best]


@compiled_in_place
def peak_bytes(prices: PriceTables, buffers: EvaluationBuffers) -> float:
    """Bytes in memory on a device at the moment of a step that has the most."""
    curve, choices = buffers.curve, buffers.choices
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
    highest = 0.0
    for size in curve:
        highest = max(highest, size)
    return highest
