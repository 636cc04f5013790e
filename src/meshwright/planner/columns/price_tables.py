"""The tables of an integer program as flat arrays, with an integer code per strategy.

A strategy is one way to partition an op. Compiled loops look its costs up by the code.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from meshwright.errors import SearchError
from meshwright.planner.columns.graph_columns import ints
from meshwright.planner.integer_program.integer_program import (
    IntegerProgram,
    PairCost,
)
from meshwright.planner.integer_program.live_counts import LiveCounts
from meshwright.planner.strategies.strategy import Strategy, StrategySet
from meshwright.search.arrays import Floats, Ints, starts_of

MOST_AXES, MOST_FACTORS, MOST_DIMS = 4, 30, 12
"""Most mesh axes, factors of an op and dims of a value whose code fits into 64 bits."""

CUT_BITS, SUM_BITS = 7, 5  # bits per axis: for the factor that it cuts, for its sum
SHIFT = SUM_BITS * MOST_AXES


class PriceTables(NamedTuple):
    """Costs of G groups, K shared values, L pair costs, M results and T moments.

    A group is a class of equal ops; a shared value has several readers; a pair cost
    depends on the choices of two variables. A field that ends in `_at` holds offsets
    into the field or fields named after it.
    kinds: number of the list of strategies of each group, [G].
    codes_at, codes, numbers: for each list, the sorted codes of its strategies and
        their numbers.
    costs_at, costs: seconds of each group's strategies.
    ends, tables_at, widths: groups of a pair cost between two groups, [L, 2]; offset of
        its table; number of strategies of the second group.
    shared_pairs_at, others, shared_tables_at: pair costs of each shared value, [K + 1];
        for each pair cost, the other group, and the offset of its table, whose columns
        are forms.
    forms: number of shardings (forms) in which each shared value may be kept, [K].
    tables: seconds and bytes, all tables concatenated.
    held_groups, held_at, counts: for each result that memory counts, its group, the
        offset of its bytes by strategy, [M], and how many are alive at each moment, [M,
        T].
    copied, extra_at, extra_widths, copies: for each copy, the two variables (groups,
        then shared values) between which it is made, [C, 2]; the offset of its bytes by
        the choices of both; the number of choices of the second; how many are alive,
        [C, T].
    """

    kinds: Ints
    codes_at: Ints
    codes: Ints
    numbers: Ints
    costs_at: Ints
    costs: Floats
    ends: Ints
    tables_at: Ints
    widths: Ints
    shared_pairs_at: Ints
    others: Ints
    shared_tables_at: Ints
    forms: Ints
    tables: Floats
    held_groups: Ints
    held_at: Ints
    counts: Floats
    copied: Ints
    extra_at: Ints
    extra_widths: Ints
    copies: Floats


def price_tables_of(
    model: IntegerProgram, lives: LiveCounts, axes: Sequence[str]
) -> PriceTables:
    """The flat tables of an integer program whose strategies use these mesh axes."""
    return _Writer(model, lives, tuple(axes)).write()


@dataclass
class _Writer:
    """Concatenates the tables of an integer program and notes the offset of each."""

    model: IntegerProgram
    lives: LiveCounts
    axes: tuple[str, ...]
    tables: list[Floats] = field(default_factory=list[Floats])
    end: int = 0

    def write(self) -> PriceTables:
        assert len(self.axes) <= MOST_AXES, f"{self.axes} do not fit into a code"
        model, num = self.model, len(self.model.choices)
        kinds = list(dict.fromkeys(model.choices))
        kind_of = {own: kind for kind, own in enumerate(kinds)}
        full = [sorted(self._codes(own)) for own in kinds]
        plain = [e for e in model.pair_costs if e.first < num and e.second < num]
        of_shared: list[list[PairCost]] = [[] for _ in model.shared_values]
        for link in model.pair_costs:
            view = max(link.first, link.second) - num
            if view >= 0:
                of_shared[view].append(link)
        flat = [link for own in of_shared for link in own]
        copied = [e for e in model.pair_costs if e.copy_key in self.lives.copies]
        held = [key for key in self.lives.counts if key[0] < num]
        return PriceTables(
            kinds=ints(kind_of[own] for own in model.choices),
            codes_at=starts_of([*map(len, full)]),
            codes=ints(code for own in full for code, _ in own),
            numbers=ints(number for own in full for _, number in own),
            costs_at=starts_of([*map(len, model.choices)]),
            costs=np.concatenate(model.costs[:num]),
            ends=ints(end for e in plain for end in (e.first, e.second)).reshape(-1, 2),
            tables_at=ints(self._add(e.seconds) for e in plain),
            widths=ints(e.seconds.shape[1] for e in plain),
            shared_pairs_at=starts_of([*map(len, of_shared)]),
            others=ints(min(e.first, e.second) for e in flat),
            shared_tables_at=ints(
                self._add(e.seconds if e.second >= num else e.seconds.T) for e in flat
            ),
            forms=ints(len(view.shardings) for view in model.shared_values),
            held_groups=ints(group for group, _ in held),
            held_at=ints(
                self._add(model.result_bytes[g][result]) for g, result in held
            ),
            counts=self._counts([self.lives.counts[key] for key in held]),
            copied=ints(end for e in copied for end in (e.first, e.second)).reshape(
                -1, 2
            ),
            extra_at=ints(self._add(e.num_bytes * e.copy_share) for e in copied),
            extra_widths=ints(e.copy_share.shape[1] for e in copied),
            copies=self._counts([self.lives.copies[e.copy_key] for e in copied]),
            tables=np.concatenate([t.ravel() for t in self.tables]),
        )

    def _codes(self, own: StrategySet) -> list[tuple[int, int]]:
        return [(code_of(s, self.axes), number) for number, s in enumerate(own)]

    def _add(self, table: Floats) -> int:
        """Append a table to the flat array of all tables, and return its offset."""
        self.tables.append(np.ascontiguousarray(table))
        start, self.end = self.end, self.end + table.size
        return start

    def _counts(self, rows: list[Floats]) -> Floats:
        return np.array(rows).reshape(len(rows), self.lives.num_times)


def code_of(strategy: Strategy, axes: Sequence[str]) -> int:
    """The integer code of a strategy (one way to partition an op).

    It has 7 bits per mesh axis for the factor that the axis splits and for the position
    of the axis among the axes that split this factor, and 5 bits per axis for how a
    partial result is reduced.
    """
    code, sums = 0, dict(strategy.reductions)
    places = {
        axis: (factor, rank)
        for factor, own in strategy.axes
        for rank, axis in enumerate(own)
    }
    for position, axis in enumerate(axes):
        factor, rank = places.get(axis, (-1, 0))
        end = sums.get(axis, NO_SUM)
        if factor >= MOST_FACTORS or end >= MOST_DIMS:
            raise SearchError(f"{strategy} has more factors or dims than a code holds")
        code |= (4 * (factor + 1) + rank) << (SHIFT + CUT_BITS * position)
        code |= (2 * (end - NO_SUM) + (axis in strategy.partial_inputs)) << (
            SUM_BITS * position
        )
    return code


NO_SUM = -3
"""Number in a code which says that no sum over the axis is needed.

The next numbers are KEEP_PARTIAL and ALL_REDUCE.
"""
