"""Tables of resharding prices, from each produced sharding to each expected one.

Nodes with equal ops share a set of strategies, and thus the shardings that they produce
and expect. Each distinct list of shardings has a number, by which tables are cached.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from meshwright.planner.prices.compute_times import ComputeTimes
from meshwright.planner.prices.resharding import ReshardingPrices
from meshwright.planner.prices.value_roles import Role
from meshwright.planner.strategies.strategy import DimAxes, StrategySet
from meshwright.program.rules.rule import Dims
from meshwright.search.arrays import Floats

type ResultSharding = tuple[DimAxes, frozenset[str]]
"""A sharding of a result: axes that split each dim, and its partial axes."""

type OperandSharding = tuple[DimAxes, frozenset[str], bool]
"""A sharding in which an operand is read.

It has the axes that split each dim; the axes along which the operand may be partial;
and whether the operand may also arrive reduced along these axes.
"""

FORBIDDEN = np.inf

_NO_AXES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Shardings[S]:
    """Shardings of a value, one for each choice of a variable.

    Two are equal if their `number` is.
    """

    number: int
    by_choice: tuple[S, ...] = field(compare=False)


type ResultShardings = Shardings[ResultSharding]
"""Shardings that a node produces, one per choice."""

type OperandShardings = Shardings[OperandSharding]
"""Shardings in which a reader expects an operand, one per choice."""


class ReshardingTables:
    """Numbered lists of shardings, and tables over them, for one mesh.

    Shardings that are passed to methods must come from the same `ReshardingTables`,
    since their numbers are not valid elsewhere.
    """

    def __init__(self, compute: ComputeTimes) -> None:
        self.compute = compute
        self._results: dict[tuple[ResultSharding, ...], ResultShardings] = {}
        self._operands: dict[tuple[OperandSharding, ...], OperandShardings] = {}
        self.produced = cache(self._produced)
        self.expected = cache(self._expected)
        self.kept = cache(self._kept)
        self.parts = cache(self._num_parts)
        self.copy_shares = cache(self._copy_shares)

    def _produced(self, choices: StrategySet, dims: Dims) -> ResultShardings:
        """The shardings of a result, one per strategy; dims: factors of its dims."""
        return _numbered(
            self._results, tuple((s.result_axes(dims), s.partial) for s in choices)
        )

    def _expected(
        self, choices: StrategySet, dims: Dims, may_be_partial: bool, is_one: bool
    ) -> OperandShardings:
        """The shardings in which an operand is read, one per strategy.

        dims: factors of the operand's dims.
        may_be_partial: whether the operand may be partial along a strategy's
            `partial_inputs`.
        is_one: whether several operands may be partial; this operand may then also
            arrive reduced.
        """
        by_choice = tuple(
            (s.dim_axes(dims), frozenset(s.partial_inputs), is_one)
            if may_be_partial and s.partial_inputs
            else (s.dim_axes(dims), _NO_AXES, True)
            for s in choices
        )
        return _numbered(self._operands, by_choice)

    def _kept(
        self, produced: ResultShardings, expected: tuple[OperandShardings, ...]
    ) -> ResultShardings:
        """Shardings in which a value can be kept for its readers.

        They are the shardings in which it is produced or in which a reader expects it.
        """
        wanted = dict.fromkeys(a for each in expected for a, _, _ in each.by_choice)
        every = dict.fromkeys(
            [*produced.by_choice, *((axes, _NO_AXES) for axes in wanted)]
        )
        return _numbered(self._results, tuple(every))

    def as_expected(self, kept: ResultShardings) -> OperandShardings:
        """The shardings in which a value can be kept, as targets of resharding."""
        return _numbered(
            self._operands,
            tuple((axes, partial, not partial) for axes, partial in kept.by_choice),
        )

    def _num_parts(self, shardings: ResultShardings) -> Floats:
        """The number of parts into which a value is split, one entry per choice."""
        return np.array([float(self.compute.parts(a)) for a, _ in shardings.by_choice])

    def _copy_shares(self, produced: ResultShardings, kept: ResultShardings) -> Floats:
        """Share of a value that its kept copy takes on a device, [P, K].

        P counts produced shardings, K kept ones. The share is 0 if both are equal,
        since no copy is made.
        """
        numbers = {axes: i for i, (axes, _) in enumerate(kept.by_choice)}
        rows, columns = (
            np.array([numbers[axes] for axes, _ in each.by_choice])
            for each in (produced, kept)
        )
        same = np.equal.outer(rows, columns)
        return np.where(same, 0.0, 1 / self.parts(kept))


def _numbered[S](
    known: dict[tuple[S, ...], Shardings[S]], by_choice: tuple[S, ...]
) -> Shardings[S]:
    return known.setdefault(by_choice, Shardings(len(known), by_choice))


def _distinct[T: Hashable](items: Sequence[T]) -> tuple[list[T], list[int]]:
    """The distinct items, and for each given item its position among them."""
    numbers = {each: i for i, each in enumerate(dict.fromkeys(items))}
    return list(numbers), [numbers[each] for each in items]


def resharding_lines(
    prices: ReshardingPrices,
    produced: ResultShardings,
    expected: OperandShardings,
    role: Role,
) -> tuple[Floats, Floats, Floats]:
    """The parts of a `ReshardingLine`, each as a table over pairs of choices, [S, T].

    The parts are latency, seconds per byte and share of the copy. The latency is
    infinite for pairs of choices that exclude each other.
    """
    sources, targets = produced.by_choice, expected.by_choice
    from_axes, rows = _distinct([axes for axes, _ in sources])
    to_axes, columns = _distinct([axes for axes, _, _ in targets])
    distinct = prices.lines(from_axes, to_axes, role)
    start, per_byte, copied = distinct[np.ix_(rows, columns)].transpose(2, 0, 1)
    partials, rows = _distinct([partial for _, partial in sources])
    ends, columns = _distinct([target[1:] for target in targets])
    accepted = np.array([[_accepts(p, *end) for end in ends] for p in partials])
    allowed = accepted[np.ix_(rows, columns)]
    return np.where(allowed, start, FORBIDDEN), np.where(allowed, per_byte, 0.0), copied


def _accepts(
    partial: frozenset[str], expected: frozenset[str], may_be_reduced: bool
) -> bool:
    """Whether a reader accepts a value that is partial along the axes `partial`.

    expected: axes along which the reader can take partial sums.
    may_be_reduced: whether the reader also takes the value reduced along these axes.
    """
    if not partial <= expected:
        return False
    return may_be_reduced or partial == expected
