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
    every_step = instructions(factors)

    @cache
    def steps_from(state: State) -> list[tuple[ReductionStep, State]]:
        """Each step that is not refused in a state, with the state after it."""
        runs = [(step, run_step(state, step, factors)) for step in every_step]
        return [(step, after) for step, after in runs if not isinstance(after, str)]

    @cache
    def completions(state: State, num_steps: int) -> tuple[ReductionProgram, ...]:
        """All programs of at most so many steps that lead from a state to the goal."""
        if goal.is_reached(state):
            return ((),)
        if not num_steps:
            return ()
        return tuple(
            (step, *rest)
            for step, after in steps_from(state)
            for rest in completions(after, num_steps - 1)
        )

    programs = completions(goal.start(2**num_levels), most_steps)
    return tuple(sorted(programs, key=len))


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
