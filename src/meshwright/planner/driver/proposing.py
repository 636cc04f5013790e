"""The first phase of a search: propose plans from integer programs and from experts.

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
    ROUNDS,
    SHORTEST_S,
    WHOLE_S,
)
from meshwright.planner.driver.recomputation import reserve_rewrite
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
from meshwright.predict.compilers.targets import compiler_of

_FIRST_END, _REFINED_END, _SMALLER_END = 0.35, 0.65, 0.8
"""Shares of the time at which three parts of the search have to end.

They are: first solutions, better solutions of the best meshes at corrected prices, and
plans with less memory if the objective counts memory. The rest is for simulations."""

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


def propose(state: SearchState) -> list[Proposal]:
    """Propose plans on the most promising meshes; simulate some of them already."""
    started = state.budget.clock()
    left = state.budget.until - started
    solutions, refined_end = state.programs.solutions, started + _REFINED_END * left
    state.programs.solve(
        started + _FIRST_END * left,
        refined_end,
        # Expert plans are mostly best on the first mesh, that of one axis.
        lambda: state.experts_on(state.task.meshes[0]),
    )
    most = _most_bytes(state)
    if all(p.bytes > most for p in solutions.values()):
        least = state.programs.smallest()
        experts = state.experts_on(least.mesh)
        return [least, *(p for p in experts if p.bytes <= most)]
    experts = _refine(state, refined_end)
    smaller = list(_find_smaller(state, started + _SMALLER_END * left))
    return [*solutions.values(), *smaller, *experts]


def experts_that_may_fit(state: SearchState) -> list[Proposal]:
    """Expert plans that may fit into memory, on meshes whose own solution may fit.

    They are tried if no simulated plan fits.
    """
    programs, known = state.programs, list[Proposal]()
    most = _most_bytes(state)
    for mesh in programs.ranked_meshes():
        if programs.solutions[mesh].bytes <= most:
            known += state.experts_on(mesh)
    return [p for p in known if p.bytes <= most]


def _most_bytes(state: SearchState) -> float:
    """Predicted bytes per device above which no plan can fit.

    This limit includes the on-chip memory, since the prediction also counts buffers that a
    compiler may place there.
    """
    machine = state.task.space.machine
    on_chip = compiler_of(machine).assigns_memory_spaces * machine.chip.room_bytes
    return state.task.limit + on_chip


def _refine(state: SearchState, ends: float) -> list[Proposal]:
    """Simulate the best solutions, and solve their meshes again at corrected prices.

    A simulation shows which collectives overlap with computation, which corrects the
    prices. Returns the expert plans of the meshes that were solved again.
    ends: clock reading in seconds at which the solves end.
    """
    programs = state.programs
    experts: list[Proposal] = []
    jobs: list[tuple[Proposal, SolveJob]] = []
    first, *others = programs.ranked_meshes()
    for mesh in (first, *others[: _REFINED - 1]):
        own = programs.solutions[mesh]
        if mesh is not first and not _is_worthwhile(state, own, bool(jobs), ends):
            continue
        if not is_spread(state, own):
            simulate_one(state, own)
        if mesh is first and programs.earlier is None:
            reserve_rewrite(state)
        if not _has_time_to_refine(state, mesh, ends):
            continue
        programs.reprice(mesh, state.trials.exposed.get(mesh, {}))
        known = state.experts_on(mesh)
        starts = [own.choices, *(expert.choices for expert in known)]
        seconds = max(ends - state.budget.clock(), WHOLE_S)
        priced = programs.priced[mesh]
        jobs.append((own, programs.submit(priced, seconds, ROUNDS, starts)))
        if known and not experts and state.budget.has_time(1):  # during the solve
            best = min(known, key=programs.rank)
            if not is_too_large(state, best):
                simulate_one(state, best)
        experts += known
    if not experts:
        experts = _experts_of_best(state, first)
    _note_refined(state, jobs)
    return experts


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
    state: SearchState, own: Proposal, is_solving: bool, ends: float
) -> bool:
    """Whether the solution of one more mesh is worth a simulation at this point.

    is_solving: whether other solves are running.
    ends: clock reading in seconds at which these solves end.
    """
    if is_solving and state.budget.clock() >= ends:
        return False
    return state.budget.has_time(1) and own.seconds <= state.programs.stop_bound()


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
    for own, job in jobs:
        optimum = job.result()
        if programs.priced[own.mesh].pricer.seconds(own.choices) <= optimum.seconds:
            # It has been simulated, and another plan of equal cost would tell nothing.
            optimum = replace(optimum, choices=own.choices)
        programs.note(own.mesh, optimum)
        if not state.budget.has_time(_LAST):
            simulate_all(state, [programs.solutions[own.mesh]])
            break


def _find_smaller(state: SearchState, ends: float) -> Iterator[Proposal]:
    """Plans that need less memory than the solutions of the most promising meshes.

    Each is yielded once it is found. There are none unless the objective counts memory.
    ends: clock reading in seconds at which the last solve has to end.
    """
    clock = state.budget.clock
    for mesh in state.programs.ranked_meshes():
        if not counts_memory(state.task.value_of, state.programs.solutions[mesh]):
            break
        yield from _find_on(state, mesh, clock() + _NEXT_SHARE * (ends - clock()))


def _find_on(state: SearchState, mesh: Mesh, ends: float) -> Iterator[Proposal]:
    """Plans of one mesh that need less memory than its solution.

    Each solve starts from the plan before it and from expert plans.
    """
    programs, task, clock = state.programs, state.task, state.budget.clock
    own, priced = programs.solutions[mesh], programs.priced[mesh]
    expert_choices = state.experts.choices_on(mesh)

    def solve_within(limit: float, known: Optimum) -> Optimum:
        task.on_progress(f"solving {mesh} within {show_bytes(limit)} per device")
        seconds = max(_NEXT_SHARE * (ends - clock()), SHORTEST_S)
        starts = [known.choices, *expert_choices]
        job = programs.submit(priced, seconds, FIRST_ROUNDS, starts, limit=limit)
        return job.result()

    first = Optimum(own.choices, own.seconds, own.bytes, 0.0)
    smaller = frontier(first, solve_within, task.value_of, lambda: clock() >= ends)
    for optimum in smaller:
        yield programs.proposal(mesh, optimum)
