"""Enumeration of all correct reduction programs up to a number of steps.

A reduction program is a sequence of collectives in groups of devices that together
compute one collective. Which programs are correct does not depend on the sizes of the
machine's levels, only on their number: at each level the first child differs from the
others, and the others are alike. So programs are enumerated once, for two children at
each level. The completions of a state are cached, since many programs reach the same
state; a state without completions ends its branch.
"""

from functools import cache
from itertools import product

from meshwright.errors import CollectiveError
from meshwright.features.collectives.instruction import (
    CollectiveKind,
    Factors,
    Form,
    Groups,
    ReductionProgram,
    ReductionStep,
)
from meshwright.features.collectives.semantics import ReductionGoal, State, run_step

MOST_STEPS = 5
"""Default of the largest number of steps.

Two levels have no programs of 5 or 6 steps.
"""

_MOST_LEVELS = 5
"""Largest number of levels; four have about 9,000 programs, five would have 100,000."""


def synthesize(
    factors: Factors,
    goal: ReductionGoal = ReductionGoal.ALL_REDUCE,
    most_steps: int = MOST_STEPS,
) -> tuple[ReductionProgram, ...]:
    """All reduction programs of at most `most_steps` steps that reach a goal.

    factors: number of children at each level of the machine. Factors of 1 are ignored;
        without other factors there is only the empty program. Instructions with equal
        groups are counted once.
    """
    if most_steps < 1:
        raise CollectiveError(f"most_steps is {most_steps}; wanted 1 or more")
    num_levels = sum(factor > 1 for factor in factors)
    if num_levels > _MOST_LEVELS:
        raise CollectiveError(
            f"the reduction extends over {num_levels} levels {list(factors)}; at most "
            f"{_MOST_LEVELS} can be enumerated"
        )
    return _programs(num_levels, goal, most_steps)


@cache
def _programs(
    num_levels: int, goal: ReductionGoal, most_steps: int
) -> tuple[ReductionProgram, ...]:
    """All reduction programs for a number of levels that each have several children."""
    factors = (2,) * num_levels
    search = _Completions(factors, goal)
    found = search.of(goal.start(2**num_levels), most_steps)
    return tuple(sorted(found, key=len))


def instructions(factors: Factors) -> tuple[ReductionStep, ...]:
    """All single steps: each collective with every distinct grouping of devices."""
    by_groups: dict[Groups, tuple[Form, int, int | None]] = {}
    for depth in range(len(factors) + 1):
        joins = [(form, under) for form in _JOINING for under in range(depth)]
        for form, under in ((Form.INSIDE, None), *joins):
            some = ReductionStep(CollectiveKind.ALL_REDUCE, form, depth, under)
            groups = some.groups(factors)
            if len(groups[0]) > 1:
                by_groups.setdefault(groups, (form, depth, under))
    return tuple(
        ReductionStep(collective, *groups)
        for groups, collective in product(by_groups.values(), CollectiveKind)
    )


_JOINING = (Form.PARALLEL, Form.MASTER)


class _Completions:
    """The programs that lead from a state of the chunks to a goal, cached."""

    def __init__(self, factors: Factors, goal: ReductionGoal) -> None:
        self.factors = factors
        self.goal = goal
        self.instructions = instructions(factors)
        self.next: dict[State, list[tuple[ReductionStep, State]]] = {}
        self.known: dict[tuple[State, int], tuple[ReductionProgram, ...]] = {}

    def of(self, state: State, steps: int) -> tuple[ReductionProgram, ...]:
        """All programs of at most `steps` steps that lead from a state to the goal."""
        if self.goal.is_reached(state):
            return ((),)
        if not steps:
            return ()
        key = state, steps
        if key not in self.known:
            self.known[key] = tuple(
                (step, *rest)
                for step, after in self._steps(state)
                for rest in self.of(after, steps - 1)
            )
        return self.known[key]

    def _steps(self, state: State) -> list[tuple[ReductionStep, State]]:
        """Each step that is not refused in a state, with the state after it."""
        if state not in self.next:
            runs = [(i, run_step(state, i, self.factors)) for i in self.instructions]
            self.next[state] = [(i, s) for i, s in runs if not isinstance(s, str)]
        return self.next[state]
