"""A search for a plan: a list of phases, from a task to simulated plans.

For each mesh an integer program is priced (the seconds of all shardings are predicted)
and solved. The best solutions are simulated, and their programs solved again at
corrected prices. Solutions and expert plans are simulated, the most promising first.
The remaining time goes to meshes that were skipped, and to writing the best plan as
ordinary tactics. Programs that recompute more in the backward pass are searched last.
"""

from collections.abc import Callable
from dataclasses import dataclass

from meshwright.machine.memory_size import show_bytes
from meshwright.partitioner.tactics import Recompute
from meshwright.planner.driver.lower_bound import (
    finish_lower_bound,
    start_lower_bound,
)
from meshwright.planner.driver.overlapping import (
    combine_collectives,
    overlap_products,
)
from meshwright.planner.driver.plan_as_tactics import write_as_tactics
from meshwright.planner.driver.proposing import (
    find_smaller_plans,
    propose_smallest,
    refine_best_meshes,
    solve_meshes,
)
from meshwright.planner.driver.recomputation import (
    KEPT_SHARE,
    SIMULATIONS,
    reserve_rewrite,
    rewrite_within,
    search_of_rewritten,
)
from meshwright.planner.driver.simulation import (
    simulate_best_solution,
    simulate_proposals,
    simulate_small_experts,
    simulate_unread_experts,
    solve_skipped_meshes,
)
from meshwright.planner.driver.state import SearchState

_MOST_REWRITES = 4
"""Number of rewrites that are tried if no plan fits into memory.

In each, the forward pass saves less for the backward pass than in the one before.
"""


@dataclass(frozen=True, slots=True)
class Phase:
    """A phase of a search, which takes and returns the search's state.

    when: condition for the phase; otherwise it is skipped.
    """

    run: Callable[[SearchState], SearchState]
    when: Callable[[SearchState], bool] = lambda state: True


PHASES = (
    Phase(solve_meshes),
    Phase(propose_smallest, when=lambda state: not state.may_fit),
    Phase(simulate_best_solution, when=lambda state: state.may_fit),
    Phase(reserve_rewrite, when=lambda state: state.may_fit),
    Phase(refine_best_meshes, when=lambda state: state.may_fit),
    Phase(find_smaller_plans, when=lambda state: state.may_fit),
    Phase(start_lower_bound),
    Phase(simulate_proposals),
    Phase(simulate_small_experts, when=lambda state: not state.trials.has_fitting),
    Phase(solve_skipped_meshes, when=lambda state: state.fits_early),
    Phase(combine_collectives),
    Phase(overlap_products),
    Phase(write_as_tactics),
    Phase(overlap_products),  # of the plans since
    Phase(simulate_unread_experts, when=lambda state: state.fits_early),
    Phase(finish_lower_bound),
)
"""The phases of a search in order. Most of them do nothing once the time is over."""


def run_phases(state: SearchState) -> SearchState:
    """The state of a search after all its phases.

    After Ctrl-C only the best solution so far is simulated, unless a plan fits already.
    A `KeyboardInterrupt` before anything was solved is raised again.
    """
    try:
        for phase in PHASES:
            if phase.when(state):
                state = phase.run(state)
    except KeyboardInterrupt:
        state.is_interrupted = True
        programs = state.programs
        if not state.trials.has_fitting:
            if not programs.solutions:
                raise
            best = min(programs.solutions.values(), key=programs.rank)
            state.trials.simulate(best.name, best.mesh, best.tactics)
    return state


def search_with_recomputation(first: SearchState) -> SearchState:
    """Run a search, then the searches of rewritten programs if they are needed.

    A rewritten program recomputes more in the backward pass. Returns the state of the
    search with the best plan. All searches share one list of simulated plans.
    """
    budget, first = first.budget, run_phases(first)
    budget.until = first.ends  # without the time that was reserved for a rewrite
    if not first.trials.has_fitting:
        return _rewrite_until_fitting(first)
    is_late = first.ends - budget.clock() < SIMULATIONS * budget.simulation_s
    if first.rewrite is None or first.is_interrupted or is_late:
        return first
    second = run_phases(search_of_rewritten(first, *first.rewrite))
    best = first.trials.best()
    if best is not None and first.rewrite[1] in best.tactics:
        return second
    first.is_interrupted = second.is_interrupted
    return first


def _rewrite_until_fitting(first: SearchState) -> SearchState:
    """Search rewritten programs that save less and less for the backward pass.

    Returns the state of the last search. The first plan that fits into memory ends the
    series.
    """
    last = first
    saved_bytes = 0.0
    tried: set[Recompute] = set()
    while len(tried) < _MOST_REWRITES:
        smallest = last.trials.smallest()
        is_over = last.is_interrupted or last.budget.clock() >= last.budget.until
        if smallest is None or last.trials.has_fitting or is_over:
            break
        mesh = smallest.mesh
        choices = first.programs.solutions[mesh].choices
        rewrite = None
        for _ in range(_MOST_REWRITES):  # until the rewrite is a new one
            saved_bytes += smallest.peak_memory_bytes - KEPT_SHARE * last.task.limit
            rewrite = rewrite_within(first, mesh, choices, saved_bytes)
            if rewrite is None or rewrite[0] not in tried:
                break
        if rewrite is None or rewrite[0] in tried:
            break
        last.task.on_progress(
            f"recomputing more in the backward pass, to save {show_bytes(saved_bytes)}"
        )
        tried.add(rewrite[0])
        last = run_phases(search_of_rewritten(first, mesh, rewrite[0]))
    return last
