"""A search, and further ones of programs that recompute more in the backward pass.

Where memory keeps the best plan from being used, the program is rewritten to keep less
for the backward pass (rematerialization) and searched again on the mesh of that plan;
where nothing fits at all, it keeps less and less.
"""

from __future__ import annotations

from meshwright.errors import MeshwrightError
from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Recompute
from meshwright.planner.candidates.proposal import counts_memory
from meshwright.planner.driver.search import run_search
from meshwright.planner.driver.state import SearchState
from meshwright.planner.driver.task import EarlierSearch, SearchTask
from meshwright.planner.recompute.saved_values import recompute_within
from meshwright.planner.solve.optimum import Choices
from meshwright.planner.solve.solver_process import SolverProcess
from meshwright.planner.solve.space import Space

_MOST_REWRITES = 4
"""Rewrites that are tried, each keeping less, where nothing fits."""

_STRETCH = 1 / 32
"""Share of the memory that values recomputed together may take."""

_MEMORY_SHARE = 0.97
"""Share of the memory that plans of a rewritten program may take by prediction."""

_KEPT_SHARE = _MEMORY_SHARE - _STRETCH
"""Share of the memory for all but the values that are being recomputed."""

_WORTHWHILE = 0.01
"""Share of the step time that a rewrite has to save if plans fit without it."""

_SIMULATIONS = 4
"""Least time to search a rewritten program, in simulations."""

_RESERVED = 0.3
"""Share of the time for the search of a rewritten program, if it is worthwhile."""


def search_with_recomputation(
    first: SearchState, solver: SolverProcess, with_experts: bool
) -> SearchState:
    """Run a search and those that follow it; the state of the one with the best plan.

    All searches share the list of candidates.
    """
    budget, rewrites = first.budget, list[tuple[Mesh, Recompute]]()

    def reserve(state: SearchState) -> float:
        left = budget.until - budget.clock()
        if _RESERVED * left < _SIMULATIONS * budget.simulation_s:
            return 0.0
        rewrite = _worthwhile_rewrite(state)
        if rewrite is None:
            return 0.0
        rewrites.append(rewrite)
        return _RESERVED * (budget.until - budget.clock())

    ends = budget.until
    run_search(first, with_experts, reserve)
    budget.until = ends
    if not first.trials.has_fitting:
        return _rewrite_until_fitting(first, solver, with_experts)
    for mesh, tactic in rewrites:
        left = ends - budget.clock()
        if first.is_interrupted or left < _SIMULATIONS * budget.simulation_s:
            break
        following = _following(first, solver, mesh, tactic)
        run_search(following, with_experts)
        best = first.trials.best()
        if best is not None and tactic in best.tactics:
            return following
        first.is_interrupted = following.is_interrupted
    return first


def _worthwhile_rewrite(state: SearchState) -> tuple[Mesh, Recompute] | None:
    """The mesh and rewrite with which the fastest plan of all fits and still pays."""
    programs, limit = state.programs, state.task.limit
    value_of = state.task.value_of
    best = min(programs.proposals, key=lambda p: p.rank(limit, value_of))
    fastest = {
        mesh: (programs.priced[mesh].pricer.seconds(s.unlimited), s.unlimited)
        for mesh, s in programs.solutions.items()
        if s.unlimited is not None
    }
    if not fastest or counts_memory(value_of, best):
        return None
    mesh = min(fastest, key=lambda mesh: fastest[mesh][0])
    seconds, choices = fastest[mesh]
    wanted_s = (1 - _WORTHWHILE) * best.seconds
    if seconds >= wanted_s:
        return None
    peak = programs.priced[mesh].pricer.peak_bytes(choices)
    found = _rewrite(state, mesh, choices, peak - _KEPT_SHARE * limit)
    if found is None or seconds + found[1] >= wanted_s:
        return None
    return mesh, found[0]


def _rewrite(
    state: SearchState, mesh: Mesh, choices: Choices, excess_bytes: float
) -> tuple[Recompute, float] | None:
    """A rewrite that saves so many bytes of a plan, and the seconds that it costs.

    `None` if there is none: no value waits for a backward pass, or the source lines of
    ops do not tell them apart.
    """
    space = state.task.space
    try:
        return recompute_within(
            state.programs.priced[mesh], choices, space.op_prices, excess_bytes,
            _STRETCH * state.task.limit,
        )  # fmt: skip
    except MeshwrightError:
        return None


def _rewrite_until_fitting(
    first: SearchState, solver: SolverProcess, with_experts: bool
) -> SearchState:
    """Search rewritten programs that keep less and less, until a plan fits."""
    last = first
    saved_bytes = 0.0
    tried: set[Recompute] = set()
    while len(tried) < _MOST_REWRITES:
        smallest = last.trials.smallest()
        is_over = last.is_interrupted or last.budget.clock() >= last.budget.until
        if smallest is None or last.trials.has_fitting or is_over:
            break
        mesh, num_bytes = smallest
        choices = first.programs.solutions[mesh].proposal.choices
        found = None
        for _ in range(_MOST_REWRITES):  # until the rewrite is a new one
            saved_bytes += num_bytes - _KEPT_SHARE * last.task.limit
            found = _rewrite(first, mesh, choices, saved_bytes)
            if found is None or found[0] not in tried:
                break
        if found is None or found[0] in tried:
            break
        last.task.on_progress(
            f"recomputing more in the backward pass, to save {saved_bytes / 2**30:.1f} GiB"
        )
        tried.add(found[0])
        last = _following(first, solver, mesh, found[0])
        run_search(last, with_experts)
    return last


def _following(
    first: SearchState, solver: SolverProcess, mesh: Mesh, tactic: Recompute
) -> SearchState:
    """The search of a rewritten program on one mesh."""
    task, programs = first.task, first.programs
    space = task.space
    earlier = EarlierSearch(
        programs.priced[mesh].model,
        programs.solutions[mesh].proposal.choices,
        len(programs.solutions),
        len(task.meshes),
    )
    rewritten = SearchTask(
        Space(space.original, space.machine, space.seed, space.tactics, (tactic,)),
        (mesh,),
        task.limit,
        task.value_of,
        task.on_progress,
        task.gather,
        _MEMORY_SHARE,
        earlier,
    )
    budget = first.budget
    return SearchState.of(
        rewritten, solver, budget.until, budget.clock, first.candidates
    )
