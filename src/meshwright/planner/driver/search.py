"""A search for a plan: from a task to simulated plans, of which the best is the answer.

For each mesh an integer program is priced (the seconds of all shardings are predicted)
and solved (`mesh_programs`). The best solutions are simulated, and their programs
solved again at corrected prices (`proposing`). Solutions and expert plans are
simulated, the most promising first (`simulation`). The remaining time goes to meshes
that were skipped, and to writing the best plan as ordinary tactics
(`planner.spelling`). Programs that recompute more in the backward pass are searched
last (`recomputation`).
"""

from functools import partial

from meshwright.machine.memory_size import show_bytes
from meshwright.partitioner.tactics import Recompute
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.proposal import FOUND
from meshwright.planner.candidates.search_result import Spelling
from meshwright.planner.driver.mesh_programs import SHORTEST_S
from meshwright.planner.driver.overlapping import (
    combine,
    overlap_products,
    without_overlap,
)
from meshwright.planner.driver.proposing import experts_that_may_fit, propose
from meshwright.planner.driver.recomputation import (
    KEPT_SHARE,
    SIMULATIONS,
    following,
    rewrite,
)
from meshwright.planner.driver.simulation import simulate_all
from meshwright.planner.driver.state import SearchState
from meshwright.planner.solve.work_rates import SPELL
from meshwright.planner.spelling.spelling import spellings
from meshwright.planner.spelling.tactic_patterns import tactics_as_code

SPELLED = "auto, as tactics"
"""Name of a plan of an integer program that was written as ordinary tactics."""

_READING = 4
"""Least time to apply the expert strategies on a mesh and to simulate one.

It is a multiple of a simulation's time.
"""

_LAST = 2
"""Number of simulations for which time is kept while skipped meshes are solved."""

_SPELLING = 3
"""Least time to find tactics that give a plan, as a multiple of a simulation's time."""

_AS_GOOD = 1.01
"""Ratio up to which a list of tactics is as good as the plan that it stands for.

It applies to step time and memory. No other list is tried then.
"""

_MOST_SPELLED = 1.2
"""Largest step time of a list of tactics that is reported.

It is relative to the plan that the list stands for.
"""

_MOST_REWRITES = 4
"""Number of rewrites that are tried if no plan fits into memory.

In each, the forward pass saves less for the backward pass than in the one before.
"""


def search_with_recomputation(first: SearchState) -> SearchState:
    """Run a search, then the searches of rewritten programs if they are needed.

    A rewritten program recomputes more in the backward pass. Returns the state of the
    search with the best plan. All searches share one list of simulated plans.
    """
    budget = first.budget
    ends = budget.until
    run_search(first)
    budget.until = ends
    if not first.trials.has_fitting:
        return _rewrite_until_fitting(first)
    is_late = ends - budget.clock() < SIMULATIONS * budget.simulation_s
    if first.rewrite is None or first.is_interrupted or is_late:
        return first
    second = following(first, *first.rewrite)
    run_search(second)
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
        found = None
        for _ in range(_MOST_REWRITES):  # until the rewrite is a new one
            saved_bytes += smallest.peak_memory_bytes - KEPT_SHARE * last.task.limit
            found = rewrite(first, mesh, choices, saved_bytes)
            if found is None or found[0] not in tried:
                break
        if found is None or found[0] in tried:
            break
        last.task.on_progress(
            f"recomputing more in the backward pass, to save {show_bytes(saved_bytes)}"
        )
        tried.add(found[0])
        last = following(first, mesh, found[0])
        run_search(last)
    return last


def run_search(state: SearchState) -> None:
    """Run all phases of a search while there is time.

    After Ctrl-C only the best solution so far is simulated, unless a plan fits already.
    A `KeyboardInterrupt` before anything was solved is raised again.
    """
    programs = state.programs
    try:
        _run_phases(state)
    except KeyboardInterrupt:
        state.is_interrupted = True
        if not state.trials.has_fitting:
            if not programs.solutions:
                raise
            best = min(programs.solutions.values(), key=programs.rank)
            state.trials.simulate(best.name, best.mesh, best.tactics)


def _run_phases(state: SearchState) -> None:
    proposals = propose(state)
    best = state.trials.best()
    if best is not None:
        simulating_s = len(proposals) * state.budget.simulation_s
        most_s = min(state.budget.left_s(1), max(SHORTEST_S, simulating_s))
        state.programs.start_proof(best.mesh, most_s)
    simulate_all(state, proposals)
    if not state.trials.has_fitting:
        simulate_all(state, experts_that_may_fit(state))
    if best is not None:
        _solve_skipped(state)
    combine(state)
    overlap_products(state)
    _spell(state)
    overlap_products(state)
    if best is not None:
        _simulate_unread(state)
    state.programs.finish_proof()


def _solve_skipped(state: SearchState) -> None:
    """Solve meshes that were skipped for lack of time, if time is left at the end."""
    programs, budget = state.programs, state.budget
    while programs.unsolved and budget.has_time(_READING):
        known = set(programs.solutions)
        ends = budget.clock() + budget.left_s(_LAST)
        programs.solve(ends, ends, lambda: None)
        new = [p for mesh, p in programs.solutions.items() if mesh not in known]
        if not new:
            return
        for own in list(new):
            new += state.experts_on(own.mesh)
        simulate_all(state, new)


def _simulate_unread(state: SearchState) -> None:
    """Simulate expert plans on meshes where none was applied so far.

    Only priced meshes count, for which the seconds of all shardings were predicted.
    """
    programs = state.programs
    for mesh in [*programs.ranked_meshes(), *programs.unsolved]:
        if mesh in programs.priced and not state.experts.choices_on(mesh):
            if not state.budget.has_time(_READING):
                return
            simulate_all(state, state.experts_on(mesh))


def _spell(state: SearchState) -> None:
    """Search for ordinary tactics that give the best plan of an integer program.

    The tactics may also give a better plan. They are stored in the state of the search.
    """
    trials, budget, space = state.trials, state.budget, state.task.space
    best = trials.best()
    found = None if best is None else without_overlap(state, best)
    if found is None or found.name != FOUND or not budget.has_time(_SPELLING):
        return
    # A plan of the program before a rewrite has other given tactics.
    if found.mesh not in state.task.meshes or found.tactics[:-1] != space.given:
        return
    state.task.on_progress(f"writing {FOUND} on {found.mesh} as tactics")
    ends, count = budget.clock() + budget.left_s(1), len(trials.candidates)
    start, work = space.start(found.mesh), space.start(found.mesh)
    found.tactics[-1].apply(work)
    note = partial(budget.count, SPELL)
    spelled: Candidate | None = None

    for tactics in spellings(work, start, lambda: budget.clock() >= ends, note):
        if budget.clock() >= ends:  # the list may lack tactics
            break
        tried = trials.simulate(SPELLED, found.mesh, tactics)
        if tried.why_not:
            continue
        if spelled is None or trials.order(tried) < trials.order(spelled):
            spelled = tried
        is_small = spelled.peak_memory_bytes <= _AS_GOOD * found.peak_memory_bytes
        if is_small and spelled.step_time_s <= _AS_GOOD * found.step_time_s:
            break
    if spelled is not None and spelled.step_time_s > _MOST_SPELLED * found.step_time_s:
        spelled = None
    # The report lists only the final tactics, not the attempts before them.
    tactics = () if spelled is None else spelled.tactics
    trials.candidates[count:] = [
        c for c in trials.candidates[count:] if c.tactics == tactics
    ]
    state.spelled = spelled and Spelling(
        spelled.tactics,
        tactics_as_code(spelled.tactics),
        spelled.step_time_s,
        spelled.peak_memory_bytes,
    )
