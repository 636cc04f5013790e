"""A search: from a task to simulated plans, the best of which is the answer.

Each mesh's program is priced and solved (`first_solutions`); the best solutions are
simulated and solved again at corrected prices (`proposing`); solutions and expert plans
are simulated, the most promising first (`simulation`); what time is left goes to meshes
that were skipped and to the search for ordinary tactics (`planner.spelling`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from meshwright.machine import Mesh
from meshwright.planner.candidates.meshes import shape_text
from meshwright.planner.candidates.proposal import FOUND
from meshwright.planner.driver.proposing import (
    Reserve,
    experts_that_may_fit,
    propose,
)
from meshwright.planner.driver.simulation import simulate_all
from meshwright.planner.driver.state import SearchState
from meshwright.planner.spelling.spelling import spell

SPELLED = "auto, spelled"
"""Name of a found plan that was written as ordinary tactics."""

_READING = 4
"""Least time to read the expert plans of a mesh and simulate one, in simulations."""

_LAST = 2
"""Simulations for which time is kept when skipped meshes are solved."""

_SPELLING = 3
"""Least time to find tactics for a plan, in simulations."""

_MOST_SPELLED = 1.2
"""Step time, relative to the found plan, up to which its tactics are reported."""


def reserve_nothing(state: SearchState) -> float:
    """No time is set aside for searches that follow."""
    return 0.0


def run_search(
    state: SearchState, with_experts: bool, reserve: Reserve = reserve_nothing
) -> None:
    """Run all phases while there is time; after Ctrl-C keep the best plan so far.

    A `KeyboardInterrupt` before anything was solved is raised.
    """
    try:
        _run_phases(state, with_experts, reserve)
    except KeyboardInterrupt:
        state.is_interrupted = True
        if not state.trials.has_fitting:
            if not state.programs.solutions:
                raise
            best = min(state.programs.proposals, key=state.programs.rank)
            state.trials.simulate(best.name, best.mesh, best.tactics)


def _run_phases(state: SearchState, with_experts: bool, reserve: Reserve) -> None:
    programs = state.programs
    proposals = propose(state, with_experts, reserve)
    best = state.trials.best()
    if best is not None:
        programs.start_proof(best.mesh, state.budget.left_s(1))
    simulate_all(state, proposals)
    if with_experts and not state.trials.has_fitting:
        simulate_all(state, experts_that_may_fit(state))
    if best is not None:
        _solve_skipped(state, with_experts)
    _spell(state)
    for mesh in _unread(state) if with_experts and best is not None else ():
        simulate_all(state, state.experts.on(mesh, programs.priced[mesh]))
    programs.finish_proof()


def _solve_skipped(state: SearchState, with_experts: bool) -> None:
    """Solve meshes that there seemed to be no time for, while some is left."""
    programs, budget = state.programs, state.budget
    while programs.unsolved and budget.has_time(_READING):
        known = set(programs.solutions)
        ends = budget.clock() + budget.left_s(_LAST)
        state.first_solutions.solve(ends, ends, lambda: None)
        new = [p for p in programs.proposals if p.mesh not in known]
        if not new:
            return
        if with_experts:
            for own in list(new):
                new += state.experts.on(own.mesh, programs.priced[own.mesh])
        simulate_all(state, new)


def _unread(state: SearchState) -> Iterator[Mesh]:
    """Priced meshes whose expert plans have not been read, while there is time."""
    for mesh in state.programs.ranked_meshes():
        is_priced = mesh in state.programs.priced
        if is_priced and not state.experts.choices_on(mesh):
            if not state.budget.has_time(_READING):
                return
            yield mesh


def _spell(state: SearchState) -> None:
    """Look for ordinary tactics that amount to the best found plan, or to a better one."""
    best, trials = state.trials.best(), state.trials
    if best is None or best.name != FOUND or not state.budget.has_time(_SPELLING):
        return
    if best.tactics[:-1] != state.task.space.given:  # a plan of an earlier program
        return
    state.task.on_progress(f"writing {best.name} on {shape_text(best.mesh)} as tactics")
    ends, count = state.budget.clock() + state.budget.left_s(1), len(trials.candidates)
    spelled = spell(
        state.task.space,
        best,
        partial(trials.simulate, SPELLED, best.mesh),
        trials.order,
        state.budget.clock,
        ends,
    )
    if spelled is None or spelled.step_time_s <= _MOST_SPELLED * best.step_time_s:
        state.spelled = spelled
    # Attempts on the way to the final tactics are of no interest to a reader.
    tactics = () if state.spelled is None else state.spelled.tactics
    trials.candidates[count:] = [
        c for c in trials.candidates[count:] if c.tactics == tactics
    ]
