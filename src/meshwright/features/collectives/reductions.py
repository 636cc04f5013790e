"""Reduction programs with their times on a machine, after P2 (Xie et al., MLSys 2022)."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from meshwright.errors import CollectiveError
from meshwright.features.collectives.group_collectives import (
    Group,
    Library,
    group_collective_s,
)
from meshwright.features.collectives.hierarchy import (
    machine_on,
    require_axes,
    require_placement,
    show_matrix,
    whole_sizes,
)
from meshwright.features.collectives.instruction import (
    CollectiveKind,
    Form,
    ReductionStep,
    parse_program,
    show_program,
)
from meshwright.features.collectives.semantics import ReductionGoal, require_correct
from meshwright.features.collectives.synthesis import MOST_STEPS, synthesize
from meshwright.machine import Machine, load_machine
from meshwright.machine.placement import Matrix, Segment
from meshwright.predict.links.collective import is_one_ring

_SHOWN = 10
"""Programs that are printed."""


@dataclass(frozen=True, slots=True)
class TimedProgram:
    """A reduction program, and its seconds on a machine; None without a machine."""

    program: tuple[ReductionStep, ...]
    seconds: float | None = None

    def __str__(self) -> str:
        return show_program(self.program)


@dataclass(frozen=True, slots=True)
class ReductionCase:
    """One reduction over mesh axes that are placed on a hierarchy.

    hierarchy: number of children at each level, from the outermost to the innermost.
    matrix: the placement, with a row for each mesh axis and a column for each level.
    reduce_axes: rows of the matrix over which is reduced.
    """

    hierarchy: tuple[int, ...]
    matrix: Matrix
    reduce_axes: tuple[int, ...]

    @property
    def levels(self) -> tuple[int, ...]:
        """The levels, as columns, at which the reduction has several children."""
        factors = enumerate(self._all_factors())
        return tuple(column for column, factor in factors if factor > 1)

    @property
    def factors(self) -> tuple[int, ...]:
        """Children at each of `levels`, the outermost first: P2's synthesis hierarchy.

        Factors of several reduced axes at the same level are multiplied (P2).
        """
        factors = self._all_factors()
        return tuple(factors[column] for column in self.levels)

    def _all_factors(self) -> list[int]:
        columns = zip(*self.matrix, strict=True)
        return [math.prod(column[a] for a in self.reduce_axes) for column in columns]

    def group(self, step: ReductionStep, machine: Machine) -> Group:
        """The segments over which each group of a step extends, and its idle siblings."""
        segments: list[Segment] = []
        for level in step.levels(len(self.factors)):
            column = self.levels[level]
            sizes = [row[column] for row in self.matrix]
            segments += [
                Segment(machine.grid[column], sizes[a], math.prod(sizes[a + 1 :]))
                for a in self.reduce_axes
                if sizes[a] > 1
            ]
        idle = math.prod(self.factors[step.depth :]) if step.form is Form.MASTER else 1
        return Group(tuple(segments), idle)


@dataclass(frozen=True, slots=True)
class Reductions:
    """All programs of one reduction, the fastest first.

    machine: name of the machine; "" if there is none, and then the smallest comes first.
    num_bytes: bytes of the value on each device before a reduction, and of the whole
        value after an all-gather.
    """

    case: ReductionCase
    goal: ReductionGoal
    programs: tuple[TimedProgram, ...]
    machine: str = ""
    library: Library | None = None
    num_bytes: float = 0.0

    def __len__(self) -> int:
        return len(self.programs)

    def __iter__(self) -> Iterator[TimedProgram]:
        return iter(self.programs)

    def __getitem__(self, index: int) -> TimedProgram:
        return self.programs[index]

    @property
    def plain(self) -> TimedProgram:
        """The program of one step, over all devices at once."""
        return min(self.programs, key=lambda each: len(each.program))

    @property
    def speed_up(self) -> float | None:
        """Seconds of the plain program over those of the fastest; None if not known."""
        first, plain = self.programs[0].seconds, self.plain.seconds
        if first is None or plain is None:
            return None
        return plain / first if first else 1.0

    def check(self, text: str) -> None:
        """Raise `CollectiveError` with the step that breaks a program, if one does."""
        require_correct(parse_program(text), self.case.factors, self.goal)

    def to_json(self) -> str:
        """The programs and times as JSON; with programs as `check` reads them."""
        return json.dumps(self.to_data(), indent=1)

    def to_data(self) -> dict[str, Any]:
        """The programs and times as plain data."""
        return {
            "hierarchy": self.case.hierarchy,
            "placement": self.case.matrix,
            "reduce_axes": self.case.reduce_axes,
            "goal": self.goal.value,
            "machine": self.machine,
            "library": self.library.value if self.library else None,
            "num_bytes": self.num_bytes,
            "programs": [
                {"program": str(each), "seconds": each.seconds} for each in self
            ],
        }

    def __str__(self) -> str:
        case = self.case
        where = f" on {self.machine}" if self.machine else ""
        head = (
            f"{len(self)} programs for {self.goal.value} over axes "
            f"{', '.join(map(str, case.reduce_axes)) or 'none'} of "
            f"{show_matrix(case.matrix)}{where}"
        )
        lines = [
            f"  {_milliseconds(p.seconds):>12}  {p}" for p in self.programs[:_SHOWN]
        ]
        left = len(self) - len(lines)
        return "\n".join([head, *lines, *([f"  and {left} more"] if left > 0 else [])])


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.4g} ms"


def reductions(  # noqa: PLR0913  a case, and the options of its prices
    hierarchy: Sequence[int],
    placement: Sequence[Sequence[int]],
    reduce_axes: Sequence[int],
    *,
    machine: str | Path | Machine | None = None,
    num_bytes: float = 2**30,
    goal: str | ReductionGoal = ReductionGoal.ALL_REDUCE,
    library: str | Library | None = None,
    most_steps: int = MOST_STEPS,
) -> Reductions:
    """All programs that reduce over mesh axes, with their times on a machine.

    hierarchy: number of children at each level, from the outermost to the innermost.
    placement: one matrix of `placements(hierarchy, axes)`.
    reduce_axes: positions of the reduced axes, which are rows of the placement.
    machine: a preset's name, a TOML file or a machine; it gets the hierarchy's grid. None
        for programs without times, the smallest first.
    num_bytes: bytes of the value on each device before a reduction, and of the whole
        value after an all-gather.
    goal: "all_reduce", "reduce_scatter" or "all_gather".
    library: the algorithm of one collective over several levels, "levels", "ring" or
        "tree"; None for the machine's own.

    >>> found = reductions([2, 16], [[2, 16]], [0])
    >>> len(found), str(found[0])
    (47, 'all_reduce inside 0')
    """
    sizes = whole_sizes(hierarchy, "hierarchy")
    matrix = require_placement(placement, sizes)
    case = ReductionCase(sizes, matrix, require_axes(reduce_axes, len(matrix)))
    wanted = _member(ReductionGoal, goal, "goal")
    programs = synthesize(case.factors, wanted, most_steps)
    if machine is None:
        return Reductions(case, wanted, tuple(map(TimedProgram, programs)))
    on = machine if isinstance(machine, Machine) else load_machine(machine)
    on = machine_on(on, sizes)
    how = None if library is None else _member(Library, library, "library")
    if not 0 < num_bytes < math.inf:
        raise CollectiveError(f"num_bytes is {num_bytes}; wanted more than 0")
    how = how or _own_library(case, on)
    factors = case.factors
    is_gather = wanted is ReductionGoal.ALL_GATHER
    held = num_bytes / math.prod(factors) if is_gather else num_bytes

    @cache
    def step_s(step: ReductionStep, held: float) -> float:
        return group_collective_s(step.collective, held, case.group(step, on), how)

    timed = [TimedProgram(p, _program_s(p, factors, held, step_s)) for p in programs]
    timed.sort(key=lambda each: (_rounded(each.seconds), len(each.program)))
    return Reductions(case, wanted, tuple(timed), on.name, how, num_bytes)


def _rounded(seconds: float | None) -> float:
    """The seconds without rounding errors, so that the shorter of equal programs leads."""
    return float(f"{seconds or 0.0:.9e}")


def _member[T: (ReductionGoal, Library)](kind: type[T], given: object, what: str) -> T:
    """The member of an enum by its value."""
    for member in kind:
        if given in (member, member.value):
            return member
    known = ", ".join(member.value for member in kind)
    raise CollectiveError(f"{what} is {given!r:.40}; there are {known}")


def _own_library(case: ReductionCase, machine: Machine) -> Library:
    """The algorithm by which the machine's library reduces over all levels at once."""
    step = ReductionStep(CollectiveKind.ALL_REDUCE, Form.INSIDE, 0)
    is_ring = is_one_ring(case.group(step, machine).segments)
    return Library.RING if is_ring else Library.LEVELS


def _program_s(
    program: Sequence[ReductionStep],
    factors: Sequence[int],
    held: float,
    step_s: Callable[[ReductionStep, float], float],
) -> float:
    """Seconds of a correct program, step after step.

    The first device always holds chunks, and devices that hold some hold as many.
    held: bytes on each device before the program.
    step_s: function from a step and the bytes that a device holds to seconds.
    """
    total = 0.0
    for step in program:
        size = math.prod(factors[i] for i in step.levels(len(factors)))
        if step.collective is CollectiveKind.ALL_GATHER:
            held *= size
        total += step_s(step, held)
        if step.collective is CollectiveKind.REDUCE_SCATTER:
            held /= size
    return total
