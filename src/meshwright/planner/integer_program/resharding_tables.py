"""Shardings of values by choice, and tables of the prices from one to another.

Nodes with equal ops share a `StrategySet`, and so the shardings that they produce and
expect. Each list of shardings gets a number at its creation; tables are kept by number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from meshwright.planner.prices.compute_times import ComputeTimes
from meshwright.planner.prices.resharding import ReshardingPrices
from meshwright.planner.prices.value_roles import Role
from meshwright.planner.strategies.strategy import DimAxes, StrategySet
from meshwright.program.rules.rule import Dims

type Table = NDArray[np.float64]

type ResultSharding = tuple[DimAxes, frozenset[str]]
"""Axes that split each dim of a value, and axes along which it is partial."""

type OperandSharding = tuple[DimAxes, frozenset[str], bool]
"""Axes that split each dim, axes along which the operand may be partial, and whether it may
also arrive reduced along these."""

FORBIDDEN = np.inf

_NO_AXES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ResultShardings:
    """Shardings of a value by choice; equal if the numbers are equal."""

    number: int
    by_choice: tuple[ResultSharding, ...] = field(compare=False)


@dataclass(frozen=True, slots=True)
class OperandShardings:
    """Shardings that a consumer expects by choice; equal if the numbers are equal."""

    number: int
    by_choice: tuple[OperandSharding, ...] = field(compare=False)


class ReshardingTables:
    """Shardings and tables of one mesh; all arguments come from the same object."""

    def __init__(self, compute: ComputeTimes) -> None:
        self.compute = compute
        self._results: dict[tuple[ResultSharding, ...], ResultShardings] = {}
        self._operands: dict[tuple[OperandSharding, ...], OperandShardings] = {}
        self._produced: dict[tuple[StrategySet, Dims], ResultShardings] = {}
        self._expected: dict[
            tuple[StrategySet, Dims, bool, bool], OperandShardings
        ] = {}
        self._kept: dict[
            tuple[ResultShardings, tuple[OperandShardings, ...]], ResultShardings
        ] = {}
        self._parts: dict[ResultShardings, Table] = {}
        self._copy_shares: dict[tuple[ResultShardings, ResultShardings], Table] = {}
        self._lines: dict[
            tuple[ResultShardings, OperandShardings, Role], tuple[Table, Table, Table]
        ] = {}

    def produced(self, choices: StrategySet, dims: Dims) -> ResultShardings:
        """Shardings of a result with these factors."""
        key = choices, dims
        known = self._produced.get(key)
        if known is None:
            by_choice = tuple((s.result_axes(dims), s.partial) for s in choices)
            known = self._produced[key] = self._numbered_results(by_choice)
        return known

    def expected(
        self, choices: StrategySet, dims: Dims, may_be_partial: bool, is_one: bool
    ) -> OperandShardings:
        """Shardings of an operand with these factors.

        may_be_partial: along the strategy's `partial_inputs`. is_one: of several operands
        that may, so that a reduced one is fine, too.
        """
        key = choices, dims, may_be_partial, is_one
        known = self._expected.get(key)
        if known is None:
            by_choice = tuple(
                (s.dim_axes(dims), frozenset(s.partial_inputs), is_one)
                if may_be_partial and s.partial_inputs
                else (s.dim_axes(dims), _NO_AXES, True)
                for s in choices
            )
            known = self._expected[key] = self._numbered_operands(by_choice)
        return known

    def kept(
        self, produced: ResultShardings, expected: Sequence[OperandShardings]
    ) -> ResultShardings:
        """Shardings in which a value can be kept: as produced, or as a reader expects."""
        key = produced, tuple(expected)
        known = self._kept.get(key)
        if known is None:
            wanted = dict.fromkeys(a for each in expected for a, _, _ in each.by_choice)
            every = dict.fromkeys(
                [*produced.by_choice, *((axes, _NO_AXES) for axes in wanted)]
            )
            known = self._kept[key] = self._numbered_results(tuple(every))
        return known

    def as_expected(self, kept: ResultShardings) -> OperandShardings:
        """The shardings in which a value is kept, as what its producer has to reach."""
        return self._numbered_operands(
            tuple((axes, partial, not partial) for axes, partial in kept.by_choice)
        )

    def parts(self, shardings: ResultShardings) -> Table:
        """Number of parts of a value, by choice."""
        known = self._parts.get(shardings)
        if known is None:
            parts = [float(self.compute.parts(a)) for a, _ in shardings.by_choice]
            known = self._parts[shardings] = np.array(parts)
        return known

    def copy_shares(self, produced: ResultShardings, kept: ResultShardings) -> Table:
        """Shares of a value that a copy for its readers takes besides the value, [P, K]."""
        key = produced, kept
        known = self._copy_shares.get(key)
        if known is None:
            numbers = {axes: i for i, (axes, _) in enumerate(kept.by_choice)}
            rows, columns = (
                np.array([numbers[axes] for axes, _ in each.by_choice])
                for each in (produced, kept)
            )
            same = np.equal.outer(rows, columns)
            known = np.where(same, 0.0, 1 / self.parts(kept))
            self._copy_shares[key] = known
        return known

    def lines(
        self,
        sources: ResultShardings,
        targets: OperandShardings,
        role: Role,
        prices: ReshardingPrices,
    ) -> tuple[Table, Table, Table]:
        """A `ReshardingLine` for each pair of choices: three tables [S, T]."""
        key = sources, targets, role
        known = self._lines.get(key)
        if known is None:
            known = _lines(sources.by_choice, targets.by_choice, role, prices)
            self._lines[key] = known
        return known

    def forget_prices(self) -> None:
        """Drop the lines, before others are asked for at other prices."""
        self._lines.clear()

    def _numbered_results(
        self, by_choice: tuple[ResultSharding, ...]
    ) -> ResultShardings:
        made = ResultShardings(len(self._results), by_choice)
        return self._results.setdefault(by_choice, made)

    def _numbered_operands(
        self, by_choice: tuple[OperandSharding, ...]
    ) -> OperandShardings:
        made = OperandShardings(len(self._operands), by_choice)
        return self._operands.setdefault(by_choice, made)


def _distinct(splits: Sequence[DimAxes]) -> tuple[list[DimAxes], list[int]]:
    """Each distinct split once, and the position of each given one among them."""
    numbers = {each: i for i, each in enumerate(dict.fromkeys(splits))}
    return list(numbers), [numbers[each] for each in splits]


def _lines(
    sources: Sequence[ResultSharding],
    targets: Sequence[OperandSharding],
    role: Role,
    prices: ReshardingPrices,
) -> tuple[Table, Table, Table]:
    from_axes, rows = _distinct([axes for axes, _ in sources])
    to_axes, columns = _distinct([axes for axes, _, _ in targets])
    distinct = prices.lines(from_axes, to_axes, role)
    start, per_byte, copied = distinct[np.ix_(rows, columns)].transpose(2, 0, 1)
    partials = {p: i for i, p in enumerate(dict.fromkeys(p for _, p in sources))}
    ends = {end: i for i, end in enumerate(dict.fromkeys(t[1:] for t in targets))}
    accepted = np.array([[_accepts(p, *end) for end in ends] for p in partials])
    rows = [partials[partial] for _, partial in sources]
    columns = [ends[target[1:]] for target in targets]
    allowed = accepted[np.ix_(rows, columns)]
    return np.where(allowed, start, FORBIDDEN), np.where(allowed, per_byte, 0.0), copied


def _accepts(
    partial: frozenset[str], expected: frozenset[str], may_be_reduced: bool
) -> bool:
    """Whether a reader takes a value that is partial along the axes `partial`."""
    if not partial <= expected:
        return False
    return may_be_reduced or partial == expected
