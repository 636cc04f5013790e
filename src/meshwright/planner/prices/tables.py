"""Forms of values, and lines over their bytes from one form to another.

Choices are shared by all nodes with the same rule, and so are the forms that they make
and need: what is made here is found again by the identity of what it is made of.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from meshwright.planner.prices.compute_times import ComputeTimes
from meshwright.planner.prices.resharding import ReshardingPrices
from meshwright.planner.prices.strategy import Cuts, Strategy
from meshwright.planner.prices.value_roles import Role
from meshwright.program.rules.rule import Dims

type Table = NDArray[np.float64]

type Form = tuple[Cuts, frozenset[str]]
"""How a value is cut, and the axes along which it is addends."""

type Need = tuple[Cuts, frozenset[str], bool]
"""How a value is wanted: its cuts, the axes along which it may be addends, and whether
it may be whole there, too."""

type Forms = tuple[Form, ...]
type Needs = tuple[Need, ...]

FORBIDDEN = np.inf

_WHOLE: frozenset[str] = frozenset()


class Tables:
    """Those of one mesh. All that goes in as `Forms` or `Needs` has come from here."""

    def __init__(self, compute: ComputeTimes) -> None:
        self.compute = compute
        self._made: dict[tuple[int, Dims], Forms] = {}
        self._needed: dict[tuple[int, Dims, bool, bool], Needs] = {}
        self._kept: dict[tuple[int, ...], Forms] = {}
        self._as_needs: dict[int, Needs] = {}
        self._parts: dict[int, Table] = {}
        self._extra: dict[tuple[int, int], Table] = {}
        self._steps: dict[tuple[int, int, Role], tuple[Table, Table, Table]] = {}

    def made(self, choices: Sequence[Strategy], dims: Dims) -> Forms:
        """Of a result with these factors, by choice."""
        key = id(choices), dims
        known = self._made.get(key)
        if known is None:
            known = tuple((s.stored(dims), s.left) for s in choices)
            self._made[key] = known
        return known

    def needed(
        self, choices: Sequence[Strategy], dims: Dims, is_carried: bool, is_one: bool
    ) -> Needs:
        """Of an operand, by choice.

        is_carried: whether it may arrive as addends. is_one: of several that may.
        """
        key = id(choices), dims, is_carried, is_one
        known = self._needed.get(key)
        if known is None:
            known = self._needed[key] = tuple(
                (s.cuts(dims), frozenset(s.partial_inputs), is_one)
                if is_carried and s.partial_inputs
                else (s.cuts(dims), _WHOLE, True)
                for s in choices
            )
        return known

    def kept(self, made: Forms, needs: Sequence[Needs]) -> Forms:
        """In which a value can be kept: as it is made, and as any reader wants it."""
        key = (id(made), *map(id, needs))
        known = self._kept.get(key)
        if known is None:
            wanted = dict.fromkeys(cuts for each in needs for cuts, _, _ in each)
            every = dict.fromkeys([*made, *((cuts, _WHOLE) for cuts in wanted)])
            known = self._kept[key] = tuple(every)
        return known

    def as_needs(self, forms: Forms) -> Needs:
        """The forms in which a value is kept, as needs of the one that makes it."""
        known = self._as_needs.get(id(forms))
        if known is None:
            known = tuple((cuts, left, not left) for cuts, left in forms)
            self._as_needs[id(forms)] = known
        return known

    def parts(self, forms: Forms) -> Table:
        """Into how many parts a value is cut, by form."""
        known = self._parts.get(id(forms))
        if known is None:
            known = np.array([float(self.compute.parts(cuts)) for cuts, _ in forms])
            self._parts[id(forms)] = known
        return known

    def extra(self, made: Forms, forms: Forms) -> Table:
        """Shares of a value that it takes to keep it beside what was made, [M, F]."""
        key = id(made), id(forms)
        known = self._extra.get(key)
        if known is None:
            numbers = {cuts: i for i, (cuts, _) in enumerate(forms)}
            rows, columns = (
                np.array([numbers[cuts] for cuts, _ in each]) for each in (made, forms)
            )
            same = np.equal.outer(rows, columns)
            known = self._extra[key] = np.where(same, 0.0, 1 / self.parts(forms))
        return known

    def steps(
        self, forms: Forms, needs: Needs, role: Role, moves: ReshardingPrices
    ) -> tuple[Table, Table, Table]:
        """From each form to each need, as `Step` has it."""
        key = id(forms), id(needs), role
        known = self._steps.get(key)
        if known is None:
            known = self._steps[key] = _steps(forms, needs, role, moves)
        return known

    def forget_prices(self) -> None:
        """The steps, before others are asked for."""
        self._steps.clear()


def _distinct(cuts: Sequence[Cuts]) -> tuple[list[Cuts], list[int]]:
    """Each once, and which of these all are."""
    numbers = {each: i for i, each in enumerate(dict.fromkeys(cuts))}
    return list(numbers), [numbers[each] for each in cuts]


def _steps(
    forms: Forms, needs: Needs, role: Role, moves: ReshardingPrices
) -> tuple[Table, Table, Table]:
    haves, rows = _distinct([cuts for cuts, _ in forms])
    wants, columns = _distinct([cuts for cuts, _, _ in needs])
    small = moves.steps(haves, wants, role)
    start, per_byte, copied = small[np.ix_(rows, columns)].transpose(2, 0, 1)
    lefts = {left: i for i, left in enumerate(dict.fromkeys(x for _, x in forms))}
    ends = {end: i for i, end in enumerate(dict.fromkeys(n[1:] for n in needs))}
    meets = np.array([[_meets(left, *end) for end in ends] for left in lefts])
    rows = [lefts[left] for _, left in forms]
    columns = [ends[need[1:]] for need in needs]
    allowed = meets[np.ix_(rows, columns)]
    return np.where(allowed, start, FORBIDDEN), np.where(allowed, per_byte, 0.0), copied


def _meets(left: frozenset[str], takes: frozenset[str], whole: bool) -> bool:
    """Whether a reader takes a value that is addends along `left`."""
    if not left <= takes:
        return False
    return whole or left == takes
