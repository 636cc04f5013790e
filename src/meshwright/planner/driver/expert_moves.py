"""A phase of a search that improves an expert's plan if that is the best so far.

The integer program has another plan on the expert's mesh, which its prices prefer and the
simulation does not. The two plans differ in parts of the program that hardly depend on
each other. So some of the differences may be gains, and those that the prices overrate are
not: the expert's plan is simulated with those of the largest predicted gain (path
relinking: Glover, Laguna and Marti, "Fundamentals of scatter search and path relinking",
Control and Cybernetics 29(3), 2000).
"""

from collections.abc import Iterator, Sequence

from meshwright.planner.driver.simulation import simulate_one
from meshwright.planner.driver.state import SearchState
from meshwright.planner.solve.optimum import Choices, Optimum
from meshwright.planner.solve.pricer import Pricer

_SIMULATIONS = 3
"""Largest number of plans between the two that are simulated."""


def improve_best_expert(state: SearchState) -> SearchState:
    """Simulate the best expert's plan with some choices of the integer program's plan.

    Reads the solutions and the simulated plans. Writes the simulated plans.
    """
    best, programs = state.trials.best(), state.programs
    if best is None or best.mesh not in programs.solutions:
        return state
    expert = state.experts.choices_of(best.name, best.mesh)
    if expert is None:
        return state
    priced = programs.priced[best.mesh]
    found = programs.solutions[best.mesh].choices
    moves = sorted(
        differences(priced.pricer, expert, found),
        key=lambda move: _seconds_of(priced.pricer, expert, found, move),
    )
    first, last = 0, len(moves)  # the expert's plan, and the integer program's
    for _ in range(_SIMULATIONS):
        count = (first + last) // 2
        if count == first or not state.budget.has_time(1):
            break
        choices = with_moves(expert, found, moves[:count])
        optimum = Optimum(
            choices,
            priced.pricer.finite_seconds(choices),
            priced.pricer.peak_bytes(choices),
            0.0,
        )
        before = state.trials.best()
        simulate_one(state, programs.proposal(best.mesh, optimum))
        if state.trials.best() is before:
            last = count
        else:
            first = count
    return state


def with_moves(
    expert: Choices, found: Choices, moves: Sequence[Sequence[int]]
) -> Choices:
    """The choices of `expert`, with those of `found` for the variables in `moves`."""
    moved = {variable for move in moves for variable in move}
    pairs = enumerate(zip(expert, found, strict=True))
    return tuple(other if i in moved else own for i, (own, other) in pairs)


def _seconds_of(
    pricer: Pricer, expert: Choices, found: Choices, move: Sequence[int]
) -> float:
    """Predicted seconds of the expert's plan after one move."""
    return pricer.seconds(with_moves(expert, found, [move]))


def differences(
    pricer: Pricer, expert: Choices, found: Choices
) -> Iterator[tuple[int, ...]]:
    """The variables in which two plans differ, as parts without costs between them."""
    different = {
        i for i, (a, b) in enumerate(zip(expert, found, strict=True)) if a != b
    }
    near: dict[int, set[int]] = {variable: set() for variable in different}
    for pair in pricer.pair_costs:
        if pair.first in different and pair.second in different:
            near[pair.first].add(pair.second)
            near[pair.second].add(pair.first)
    while different:
        part, waiting = set[int](), [min(different)]
        while waiting:
            variable = waiting.pop()
            if variable not in part:
                part.add(variable)
                waiting.extend(near[variable])
        different -= part
        yield tuple(sorted(part))
