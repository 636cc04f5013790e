"""The first phase of a search: proposals from integer programs and from experts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace

from meshwright.machine import Mesh
from meshwright.planner.candidates.proposal import Proposal
from meshwright.planner.driver.mesh_programs import ROUNDS, WHOLE_S
from meshwright.planner.driver.simulation import (
    is_spread,
    is_too_large,
    simulate_all,
    simulate_one,
)
from meshwright.planner.driver.smaller_plans import find_smaller
from meshwright.planner.driver.state import SearchState
from meshwright.planner.solve.optimum import Optimum
from meshwright.planner.solve.space import Priced, solving_s
from meshwright.predict.compilers.targets import compiler_of

_FIRST_END, _REFINED_END, _SMALLER_END = 0.35, 0.65, 0.8
"""Shares of the time at which first solutions, refined solutions of the best meshes and,
where the objective counts memory, smaller plans have to be found; the rest is for
simulations."""

_REFINED = 3
"""Meshes on which expert plans are read and the program is solved again."""

_REFINING = 3
"""Least time to price and solve a mesh again, in simulations."""

_LAST = 2
"""Simulations' worth of time below which the first refined plan is simulated at once."""

type Reserve = Callable[[SearchState], float]
"""Seconds to set aside for searches that follow; asked after the first simulation."""


def propose(state: SearchState, with_experts: bool, reserve: Reserve) -> list[Proposal]:
    """Proposals for the most promising meshes; some of them are simulated already."""
    started = state.budget.clock()
    left = state.budget.until - started
    programs, experts = state.programs, state.experts

    def read_first_mesh() -> None:
        """Expert plans are mostly best on the first mesh, that of one axis."""
        first = state.task.meshes[0]
        if with_experts:
            experts.on(first, programs.priced[first])

    state.first_solutions.solve(
        started + _FIRST_END * left, started + _REFINED_END * left, read_first_mesh
    )
    most = _most_bytes(state)
    if all(p.bytes > most for p in programs.proposals):
        least = programs.smallest()
        priced = programs.priced[least.mesh]
        known = experts.on(least.mesh, priced) if with_experts else []
        return [least, *(p for p in known if p.bytes <= most)]
    known = _refine(state, started + _REFINED_END * left, with_experts, reserve)
    smaller = list(find_smaller(programs, experts, started + _SMALLER_END * left))
    return [*programs.proposals, *smaller, *known]


def experts_that_may_fit(state: SearchState) -> list[Proposal]:
    """Expert plans on the meshes on which a found plan may fit, though none has."""
    programs, known = state.programs, list[Proposal]()
    most = _most_bytes(state)
    for mesh in programs.ranked_meshes():
        solution = programs.solutions.get(mesh)
        if solution is not None and solution.proposal.bytes <= most:
            known += state.experts.on(mesh, programs.priced[mesh])
    return [p for p in known if p.bytes <= most]


def _most_bytes(state: SearchState) -> float:
    """Predicted bytes above which no plan can fit.

    The prediction counts buffers that a compiler may place in on-chip memory, where they
    take none of the limit.
    """
    machine = state.task.space.machine
    on_chip = compiler_of(machine).assigns_memory_spaces * machine.chip.room_bytes
    return state.task.limit + on_chip


def _refine(
    state: SearchState, ends: float, with_experts: bool, reserve: Reserve
) -> list[Proposal]:
    """Simulate the best solutions, solve again at prices corrected by the simulation.

    Returns the expert plans of the meshes that were refined.
    """
    programs = state.programs
    experts: list[Proposal] = []
    jobs: list[tuple[Proposal, Priced, Future[Optimum]]] = []
    first, *others = [m for m in programs.ranked_meshes() if m in programs.solutions]
    for mesh in (first, *others[: _REFINED - 1]):
        own = programs.solutions[mesh].proposal
        if mesh is not first and not _is_worthwhile(state, own, bool(jobs), ends):
            continue
        if not is_spread(state, own):
            simulate_one(state, own)
        if mesh is first:
            state.budget.until -= reserve(state)
        if not _has_time_to_refine(state, mesh, ends):
            continue
        priced = programs.reprice(mesh, state.trials.exposed.get(mesh, {}))
        known = state.experts.on(mesh, priced) if with_experts else []
        starts = [own.choices, *(expert.choices for expert in known)]
        seconds = max(ends - state.budget.clock(), WHOLE_S)
        jobs.append((own, priced, programs.submit(priced, seconds, ROUNDS, starts)))
        if known and not experts and state.budget.has_time(1):  # during the solve
            best = min(known, key=programs.rank)
            if not is_too_large(state, best):
                simulate_one(state, best)
        experts += known
    if with_experts and not experts:
        experts = _experts_of_best(state, first)
    _note_refined(state, jobs)
    return experts


def _experts_of_best(state: SearchState, otherwise: Mesh) -> list[Proposal]:
    """Expert plans on the mesh of the best plan, or else on the given mesh.

    A plan of an earlier search may lie on a mesh that has no prices here.
    """
    best, programs = state.trials.best(), state.programs
    is_own = best is not None and best.mesh in programs.priced
    mesh = best.mesh if best is not None and is_own else otherwise
    return state.experts.on(mesh, programs.priced[mesh])


def _is_worthwhile(
    state: SearchState, own: Proposal, is_solving: bool, ends: float
) -> bool:
    """Whether the solution of a mesh other than the first is simulated before experts."""
    if is_solving and state.budget.clock() >= ends:
        return False
    return state.budget.has_time(1) and own.seconds <= state.programs.stop_bound()


def _has_time_to_refine(state: SearchState, mesh: Mesh, ends: float) -> bool:
    """Whether a mesh's program can be priced and solved once more."""
    budget = state.budget
    ready = budget.clock() + _REFINING * budget.simulation_s
    ready += solving_s(state.programs.priced[mesh])
    return budget.has_time(_REFINING) and ready < ends


def _note_refined(
    state: SearchState, jobs: Sequence[tuple[Proposal, Priced, Future[Optimum]]]
) -> None:
    """Keep the refined solutions; simulate one at once if the time is running out."""
    programs = state.programs
    for own, priced, job in jobs:
        optimum = job.result()
        if priced.pricer.seconds(own.choices) <= optimum.seconds:
            # It has been simulated, and another plan of equal cost would tell nothing.
            optimum = replace(optimum, choices=own.choices)
        programs.note(own.mesh, optimum)
        if not state.budget.has_time(_LAST):
            simulate_all(state, [programs.solutions[own.mesh].proposal])
            break
