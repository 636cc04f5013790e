"""The tables of a model in flat arrays, and a code for each strategy to find it by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from meshwright.errors import SearchError
from meshwright.planner.columns.graph_columns import ints, starts_of
from meshwright.planner.prices.integer_program import IntegerProgram, PairCost, Table
from meshwright.planner.prices.live_counts import LiveCounts
from meshwright.planner.prices.strategy import Strategy
from meshwright.search.arrays import Floats, Ints

MOST_AXES, MOST_FACTORS, MOST_DIMS = 4, 30, 12
"""What fits into a code of 64 bits."""

CUT_BITS, SUM_BITS = 7, 5
SHIFT = SUM_BITS * MOST_AXES


class PriceTables(NamedTuple):
    """G groups, K views, L links, M results that memory counts, T moments.

    kinds: of each group, what strategies it has, [G]. codes_at, codes, numbers: of each
        kind its codes in order, and the strategy of each. cuts_at, cuts, firsts: the
        same of how strategies cut, sums left out, and the first of each.
    costs_at, costs: seconds of each group's strategies.
    ends: [L, 2], groups at both ends of a link without views. tables_at: [L]. widths:
        strategies of the second, [L].
    view_links_at: [K + 1]; of each such link other: the group at its other end;
        view_tables_at: where its table begins, the view's forms being the columns.
    forms: of each view, [K].
    tables: seconds, and bytes held, of all these.
    held_groups, held_at, counts: group of each result that memory counts, where its
        bytes by strategy begin, [M], and how many are alive, [M, T].
    copied: variables, groups and then views, between which there are copies, [C, 2].
        extra_at, extra_widths: where their bytes begin, by the choices of both, and how
        many the second has, [C]. copies: how many are alive, [C, T].
    """

    kinds: Ints
    codes_at: Ints
    codes: Ints
    numbers: Ints
    cuts_at: Ints
    cuts: Ints
    firsts: Ints
    costs_at: Ints
    costs: Floats
    ends: Ints
    tables_at: Ints
    widths: Ints
    view_links_at: Ints
    others: Ints
    view_tables_at: Ints
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
    """The tables of a model."""
    return _Writer(model, lives, tuple(axes)).write()


class _Writer:
    """Puts tables one behind the other."""

    def __init__(
        self, model: IntegerProgram, lives: LiveCounts, axes: tuple[str, ...]
    ) -> None:
        self.model = model
        self.lives = lives
        self.axes = axes
        self.num = len(model.choices)
        self.tables: list[Table] = []
        self.end = 0
        assert len(axes) <= MOST_AXES, f"{len(axes)} axes do not fit into a code"

    def write(self) -> PriceTables:
        model, num = self.model, self.num
        kinds = list({id(own): own for own in model.choices}.values())
        kind_of = {id(own): kind for kind, own in enumerate(kinds)}
        full = [sorted(self._codes(own)) for own in kinds]
        cuts = [_first_of_each(own) for own in full]
        plain = [e for e in model.pair_costs if e.first < num and e.second < num]
        of_view: list[list[PairCost]] = [[] for _ in model.shared_values]
        for link in model.pair_costs:
            view = max(link.first, link.second) - num
            if view >= 0:
                of_view[view].append(link)
        flat = [link for own in of_view for link in own]
        copied = [e for e in model.pair_costs if e.copy_key in self.lives.copies]
        held = [key for key in self.lives.counts if key[0] < num]
        return PriceTables(
            kinds=ints(kind_of[id(own)] for own in model.choices),
            codes_at=starts_of(map(len, full)),
            codes=ints(code for own in full for code, _ in own),
            numbers=ints(number for own in full for _, number in own),
            cuts_at=starts_of(map(len, cuts)),
            cuts=ints(code for own in cuts for code, _ in own),
            firsts=ints(number for own in cuts for _, number in own),
            costs_at=starts_of(map(len, model.choices)),
            costs=np.concatenate(model.costs[:num]),
            ends=ints(end for e in plain for end in (e.first, e.second)).reshape(-1, 2),
            tables_at=ints(self._add(e.seconds) for e in plain),
            widths=ints(e.seconds.shape[1] for e in plain),
            view_links_at=starts_of(map(len, of_view)),
            others=ints(min(e.first, e.second) for e in flat),
            view_tables_at=ints(
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

    def _codes(self, own: Sequence[Strategy]) -> list[tuple[int, int]]:
        return [(code_of(s, self.axes), number) for number, s in enumerate(own)]

    def _add(self, table: Table) -> int:
        """Where a table begins."""
        self.tables.append(np.ascontiguousarray(table))
        start, self.end = self.end, self.end + table.size
        return start

    def _counts(self, rows: list[Floats]) -> Floats:
        return np.array(rows).reshape(len(rows), self.lives.num_times)


def code_of(strategy: Strategy, axes: Sequence[str]) -> int:
    """A number for a strategy: how each axis cuts, then what it sums."""
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
"""Before KEEP_PARTIAL and ALL_REDUCE: what an axis along which nothing is summed has in a
code."""


def _first_of_each(codes: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """By how strategies cut the first of them."""
    found: dict[int, int] = {}
    for code, number in codes:
        cut = code >> SHIFT
        found[cut] = min(number, found.get(cut, number))
    return sorted(found.items())
