"""The first phases of a search: propose plans from integer programs and from experts.

Expert plans follow published strategies, such as data parallelism or Megatron. Prices
are the predicted seconds in an integer program; a simulated plan shows how to correct
them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from meshwright.machine import Mesh
from meshwright.machine.memory_size import show_bytes
from meshwright.planner.candidates.proposal import Proposal, counts_memory
from meshwright.planner.driver.mesh_programs import (
    FIRST_ROUNDS,
    SHORTEST_S,
    WHOLE_S,
)
from meshwright.planner.driver.simulation import (
    is_spread,
    is_too_large,
    simulate_all,
    simulate_one,
)
from meshwright.planner.driver.state import SearchState
from meshwright.planner.solve.frontier import frontier
from meshwright.planner.solve.optimum import Optimum
from meshwright.planner.solve.solver_process import SolveJob
from meshwright.planner.solve.space import solving_s

_FIRST_END = 0.35
"""Share of the time at which the first solves have to end."""

_REFINED_END = 0.65
"""Share of the time at which the solves at corrected prices have to end."""

_SMALLER_END = 0.8
"""Share of the time at which the solves for plans with less memory have to end.

The rest is for simulations.
"""

_ROUNDS = 200
"""Rounds of the solver for the best meshes at corrected prices."""

_REFINED = 3
"""Largest number of meshes whose integer program is solved again at corrected prices.

Expert plans are priced on the same meshes.
"""

_REFINING = 3
"""Least time to price and solve a mesh again, as a multiple of a simulation's time."""

_LAST = 2
"""Number of simulations for which time must be left to wait for further solves.

If less is left, the next plan at corrected prices is simulated at once.
"""

_NEXT_SHARE = 0.5
"""Share of the remaining time for the next mesh, and for the next solve on a mesh.

It applies to the search for plans with less memory.
"""


def solve_meshes(state: SearchState) -> SearchState:
    """Price and solve the integer programs of meshes, as many as time allows.

    Reads the time. Writes the solutions, the expert plans of the first mesh and
    `may_fit`.
    """
    state.programs.solve(
        state.reading_at(_FIRST_END),
        state.reading_at(_REFINED_END),
        # Expert plans are mostly best on the first mesh, that of one axis.
        lambda: state.experts_on(state.task.meshes[0]),
    )
    most = state.task.most_bytes
    state.may_fit = any(p.bytes <= most for p in state.programs.solutions.values())
    return state


def propose_smallest(state: SearchState) -> SearchState:
    """Propose the smallest solution, and the expert plans of its mesh that may fit.

    It is for a search in which no solution may fit. Reads the solutions. Writes the
    expert plans and the proposals.
    """
    smallest = state.programs.smallest()
    experts = state.experts_on(smallest.mesh)
    small_experts = (p for p in experts if p.bytes <= state.task.most_bytes)
    state.proposals = [smallest, *small_experts]
    return state


def refine_best_meshes(state: SearchState) -> SearchState:
    """Simulate the best solutions, and solve their meshes again at corrected prices.

    A simulation shows which collectives overlap with computation, which corrects the
    prices. Reads the solutions. Writes the prices, the solutions, the expert plans of
    the meshes that are solved again, the simulated plans and the proposals.
    """
    programs, ends = state.programs, state.reading_at(_REFINED_END)
    experts: list[Proposal] = []
    jobs: list[tuple[Proposal, SolveJob]] = []
    first, *others = programs.ranked_meshes()
    for mesh in (first, *others[: _REFINED - 1]):
        solution = programs.solutions[mesh]
        if mesh is not first:  # the first solution has been simulated
            if not _is_worthwhile(state, solution, bool(jobs), ends):
                continue
            if not is_spread(state, solution):
                simulate_one(state, solution)
        if not _has_time_to_refine(state, mesh, ends):
            continue
        programs.reprice(mesh, state.trials.exposed.get(mesh, {}))
        mesh_experts = state.experts_on(mesh)
        starts = [solution.choices, *(expert.choices for expert in mesh_experts)]
        seconds = max(ends - state.budget.clock(), WHOLE_S)
        job = programs.submit(programs.priced[mesh], seconds, _ROUNDS, starts)
        jobs.append((solution, job))
        if (
            mesh_experts and not experts and state.budget.has_time(1)
        ):  # during the solve
            best = min(mesh_experts, key=programs.rank)
            if not is_too_large(state, best):
                simulate_one(state, best)
        experts += mesh_experts
    if not experts:
        experts = _experts_of_best(state, first)
    _note_refined(state, jobs)
    state.proposals = [*programs.solutions.values(), *experts]
    return state


def _experts_of_best(state: SearchState, otherwise: Mesh) -> list[Proposal]:
    """Expert plans on the mesh of the best simulated plan, or else on `otherwise`.

    The best plan may stem from an earlier search, on a mesh that this search has not
    priced.
    """
    best = state.trials.best()
    if best is None or best.mesh not in state.programs.priced:
        return state.experts_on(otherwise)
    return state.experts_on(best.mesh)


def _is_worthwhile(
    state: SearchState, solution: Proposal, is_solving: bool, ends: float
) -> bool:
    """Whether the solution of one more mesh is worth a simulation at this point.

    is_solving: whether other solves are running.
    ends: clock reading in seconds at which these solves end.
    """
    if is_solving and state.budget.clock() >= ends:
        return False
    return state.budget.has_time(1) and solution.seconds <= state.programs.stop_bound()


def _has_time_to_refine(state: SearchState, mesh: Mesh, ends: float) -> bool:
    """Whether a mesh's integer program can be priced and solved again before `ends`."""
    budget = state.budget
    ready = budget.clock() + _REFINING * budget.simulation_s
    ready += solving_s(state.programs.priced[mesh])
    return budget.has_time(_REFINING) and ready < ends


def _note_refined(
    state: SearchState, jobs: Sequence[tuple[Proposal, SolveJob]]
) -> None:
    """Wait for the solver's jobs, and record their solutions.

    If the time is running out, the next solution is simulated at once, and all later
    jobs are dropped.
    """
    programs = state.programs
    for before, job in jobs:
        mesh, optimum = before.mesh, job.result()
        if programs.priced[mesh].pricer.seconds(before.choices) <= optimum.seconds:
            # It has been simulated, and another plan of equal cost would tell nothing.
            optimum = replace(optimum, choices=before.choices)
        programs.note(mesh, optimum)
        if not state.budget.has_time(_LAST):
            simulate_all(state, [programs.solutions[mesh]])
            break


def find_smaller_plans(state: SearchState) -> SearchState:
    """Propose plans that need less memory than the solutions of the best meshes.

    There are none unless the objective counts memory. Reads the solutions. Writes the
    proposals.
    """
    clock, ends = state.budget.clock, state.reading_at(_SMALLER_END)
    for mesh in state.programs.ranked_meshes():
        if not counts_memory(state.task.value_of, state.programs.solutions[mesh]):
            break
        mesh_ends = clock() + _NEXT_SHARE * (ends - clock())
        state.proposals += _smaller_plans(state, mesh, mesh_ends)
    return state


def _smaller_plans(state: SearchState, mesh: Mesh, ends: float) -> Iterator[Proposal]:
    """Plans of one mesh that need less memory than its solution.

    Each solve starts from the plan before it and from expert plans.
    ends: clock reading in seconds at which the last solve has to end.
    """
    programs, task, clock = state.programs, state.task, state.budget.clock
    solution, priced = programs.solutions[mesh], programs.priced[mesh]
    expert_choices = state.experts.choices_on(mesh)

    def solve_within(limit: float, larger: Optimum) -> Optimum:
        task.on_progress(f"solving {mesh} within {show_bytes(limit)} per device")
        seconds = max(_NEXT_SHARE * (ends - clock()), SHORTEST_S)
        starts = [larger.choices, *expert_choices]
        job = programs.submit(priced, seconds, FIRST_ROUNDS, starts, limit=limit)
        return job.result()

    first = Optimum(solution.choices, solution.seconds, solution.bytes, 0.0)
    smaller = frontier(first, solve_within, task.value_of, lambda: clock() >= ends)
    return (programs.proposal(mesh, optimum) for optimum in smaller)
