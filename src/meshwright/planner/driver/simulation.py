"""Phases of a search that simulate plans, and the order in which plans are simulated."""

from collections.abc import Sequence

from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.proposal import FOUND, Proposal, interleave
from meshwright.planner.driver.mesh_programs import FIRST_ROUNDS, MAX_RATIO, SHORTEST_S
from meshwright.planner.driver.state import SearchState

_TOO_LARGE = 1.1
"""Predicted memory, relative to the limit, above which a plan may be skipped."""

RETRIES = 3
"""Number of times that a mesh is solved again with a lower memory limit.

This happens if a simulated plan needs more memory than predicted.
"""

RETRY_MARGIN = 0.98
"""Safety factor on a lowered memory limit."""

_RETRY_SHARE = 0.25
"""Share of the remaining time to solve a mesh again with a lower memory limit."""

_READING = 4
"""Least time to apply the expert strategies on a mesh and to simulate one.

It is a multiple of a simulation's time.
"""

_LAST = 2
"""Number of simulations for which time is kept while skipped meshes are solved."""


def simulate_best_solution(state: SearchState) -> SearchState:
    """Simulate the most promising solution of an integer program.

    Reads the solutions. Writes the simulated plans.
    """
    solution = state.programs.solutions[state.programs.ranked_meshes()[0]]
    if not is_spread(state, solution):
        simulate_one(state, solution)
    return state


def simulate_proposals(state: SearchState) -> SearchState:
    """Simulate the proposals while there is time, the most promising first.

    Reads the proposals. Writes the simulated plans.
    """
    simulate_all(state, state.proposals)
    return state


def simulate_small_experts(state: SearchState) -> SearchState:
    """Simulate expert plans that may fit, on meshes whose own solution may fit.

    It is for a search in which no simulated plan fits. Reads the solutions. Writes the
    expert plans and the simulated plans.
    """
    programs, most = state.programs, state.task.most_bytes
    experts: list[Proposal] = []
    for mesh in programs.ranked_meshes():
        if programs.solutions[mesh].bytes <= most:
            experts += state.experts_on(mesh)
    simulate_all(state, [p for p in experts if p.bytes <= most])
    return state


def solve_skipped_meshes(state: SearchState) -> SearchState:
    """Solve meshes that were skipped for lack of time, and simulate their plans.

    Reads the time left. Writes the solutions, the expert plans and the simulated plans.
    """
    programs, budget = state.programs, state.budget
    while programs.unsolved and budget.has_time(_READING):
        solved_before = set(programs.solutions)
        ends = budget.clock() + budget.left_s(_LAST)
        programs.solve(ends, ends, lambda: None)
        new = [p for m, p in programs.solutions.items() if m not in solved_before]
        if not new:
            break
        for solution in list(new):
            new += state.experts_on(solution.mesh)
        simulate_all(state, new)
    return state


def simulate_unread_experts(state: SearchState) -> SearchState:
    """Simulate expert plans on priced meshes where none was applied so far.

    On priced meshes, the seconds of all shardings are predicted. Reads the time left.
    Writes the expert plans and the simulated plans.
    """
    programs = state.programs
    for mesh in [*programs.ranked_meshes(), *programs.unsolved]:
        if mesh in programs.priced and not state.experts.choices_on(mesh):
            if not state.budget.has_time(_READING):
                break
            simulate_all(state, state.experts_on(mesh))
    return state


def simulate_all(state: SearchState, proposals: Sequence[Proposal]) -> None:
    """Simulate proposed plans while there is time, the most promising first.

    Solutions carried over from the mesh of one axis come last, since they differ from a
    simulated plan only in the links that their collectives use.
    """
    ordered = interleave(proposals, state.task.limit, state.task.value_of)
    for proposal in sorted(ordered, key=lambda p: is_spread(state, p)):
        best = state.trials.best()
        if best is not None and not state.budget.has_time(1):
            break
        if is_too_large(state, proposal):
            continue
        tried = [(c.name, c.mesh, c.tactics) for c in state.trials.candidates]
        tactics = (*state.task.space.kept_tactics, *proposal.tactics)
        if (proposal.name, proposal.mesh, tactics) in tried:
            continue
        is_slow = best is not None and _is_too_slow(state, proposal, best)
        if is_slow and proposal.name in {name for name, _, _ in tried}:
            continue
        simulate_one(state, proposal)


def is_spread(state: SearchState, proposal: Proposal) -> bool:
    """Whether a plan is the simulated plan of the one-axis mesh on more axes.

    Such a plan cuts the same dims, along all axes together. Only the links of its
    collectives differ: steps of the benchmark programs took up to 3 % less.
    """
    if proposal.choices != state.programs.spread.get(proposal.mesh):
        return False
    first = state.task.meshes[0]
    return any((c.name, c.mesh) == (FOUND, first) for c in state.trials.candidates)


def is_too_large(state: SearchState, proposal: Proposal) -> bool:
    """Whether to skip a plan because its predicted memory is too large.

    The prediction may be wrong. So a plan is skipped only if the time is over, or in a
    search that continues an earlier one.
    """
    is_late = bool(state.simulated) and state.budget.clock() >= state.budget.until
    is_continued = state.programs.earlier is not None
    is_large = proposal.bytes > _TOO_LARGE * state.task.limit
    return (is_late or is_continued) and is_large


def _is_too_slow(state: SearchState, proposal: Proposal, best: Candidate) -> bool:
    """Whether a plan's predicted objective is far above that of the best plan.

    For the best plan, the larger of its simulated objective and the lowest prediction
    counts, since all predictions may be too high.
    """
    value_of = state.task.value_of
    predicted = [value_of(p.seconds, p.bytes) for p in state.simulated]
    simulated = value_of(best.step_time_s, best.peak_memory_bytes)
    least = max(simulated, min(predicted, default=0.0))
    return value_of(proposal.seconds, proposal.bytes) > MAX_RATIO * least


def simulate_one(state: SearchState, proposal: Proposal) -> None:
    """Simulate a proposed plan.

    If the plan of an integer program does not fit as predicted, the program is solved
    again with a lower memory limit, up to three times.
    """
    state.simulated.append(proposal)
    candidate = state.trials.simulate(proposal.name, proposal.mesh, proposal.tactics)
    limit = state.task.limit
    if proposal.name != FOUND or proposal.bytes > limit:
        return
    programs = state.programs
    for _ in range(RETRIES):
        if state.trials.has_fitting:
            left_s = state.budget.left_s(1)
        else:  # no final plan is built, since nothing fits yet
            left_s = state.budget.until - state.budget.clock()
        if candidate.why_not or candidate.fits or left_s <= 0:
            return
        if state.proof is not None:  # the solver process is busy; a plan fits
            return
        less = RETRY_MARGIN * proposal.bytes * limit / candidate.peak_memory_bytes
        seconds = max(_RETRY_SHARE * left_s, SHORTEST_S)
        priced, starts = programs.priced[proposal.mesh], [proposal.choices]
        job = programs.submit(priced, seconds, FIRST_ROUNDS, starts, limit=less)
        proposal = programs.proposal(proposal.mesh, job.result())
        state.simulated.append(proposal)
        before = candidate
        candidate = state.trials.simulate(FOUND, proposal.mesh, proposal.tactics)
        if candidate.peak_memory_bytes >= before.peak_memory_bytes:
            return
