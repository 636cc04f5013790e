"""A search for a plan: a list of phases, from a task to simulated plans.

For each mesh an integer program is priced (the seconds of all shardings are predicted)
and solved. The best solutions are simulated, and their programs solved again at
corrected prices. Solutions and expert plans are simulated, the most promising first.
The remaining time goes to meshes that were skipped, and to writing the best plan as
ordinary tactics. Programs that recompute more in the backward pass are searched last.
"""

from collections.abc import Callable
from dataclasses import dataclass

from meshwright.planner.driver import (
    expert_moves,
    lower_bound,
    overlapping,
    plan_as_tactics,
    proposing,
    recomputation,
    simulation,
)
from meshwright.planner.driver.state import SearchState


@dataclass(frozen=True, slots=True)
class SearchPhase:
    """A phase of a search, which takes and returns the search's state.

    when: condition for the phase; otherwise it is skipped.
    """

    run: Callable[[SearchState], SearchState]
    when: Callable[[SearchState], bool] = lambda state: True


PHASES = (
    SearchPhase(proposing.solve_meshes),
    SearchPhase(proposing.propose_smallest, when=lambda state: not state.may_fit),
    SearchPhase(simulation.simulate_best_solution, when=lambda state: state.may_fit),
    SearchPhase(recomputation.reserve_rewrite, when=lambda state: state.may_fit),
    SearchPhase(proposing.refine_best_meshes, when=lambda state: state.may_fit),
    SearchPhase(proposing.find_smaller_plans, when=lambda state: state.may_fit),
    SearchPhase(lower_bound.start_lower_bound),
    SearchPhase(simulation.simulate_proposals),
    SearchPhase(
        simulation.simulate_small_experts,
        when=lambda state: not state.trials.has_fitting,
    ),
    SearchPhase(simulation.solve_skipped_meshes, when=lambda state: state.fits_early),
    SearchPhase(expert_moves.improve_best_expert),
    SearchPhase(overlapping.combine_collectives),
    SearchPhase(overlapping.overlap_products),
    SearchPhase(plan_as_tactics.write_as_tactics),
    SearchPhase(overlapping.overlap_products),  # of the plans since
    SearchPhase(
        simulation.simulate_unread_experts, when=lambda state: state.fits_early
    ),
    SearchPhase(lower_bound.finish_lower_bound),
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
    state = run_phases(first)
    state.budget.until = state.ends  # without the time that was reserved for a rewrite
    best_before = state.trials.best()
    rewrite = (
        recomputation.rewrite_to_fit
        if best_before is None
        else recomputation.rewrite_for_speed
    )
    while (following := rewrite(state)) is not None:
        state = run_phases(following)
    if best_before is None or first.rewrite is None:
        return state
    best = state.trials.best()
    if best is None or first.rewrite[1] not in best.tactics:
        first.is_interrupted = state.is_interrupted
        return first
    return state
