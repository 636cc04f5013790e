"""Rewritten programs that recompute more in the backward pass, and their searches.

If the fastest plan does not fit into memory, the program is rewritten so that its
forward pass saves less for the backward pass (rematerialization). If it fits, the program
is rewritten where a value takes longer to write and read than to compute again. The new
program is searched on the mesh of that plan. If no plan fits at all, the program is
rewritten several times, to save less each time.
"""

from dataclasses import replace

from meshwright.errors import MeshwrightError
from meshwright.machine import Mesh
from meshwright.machine.memory_size import show_bytes
from meshwright.partitioner.tactics import Recompute
from meshwright.planner.candidates.proposal import counts_memory
from meshwright.planner.driver.mesh_programs import MeshPrograms
from meshwright.planner.driver.state import SearchState
from meshwright.planner.driver.task import TimeBudget
from meshwright.planner.recompute.saved_values import (
    recompute_for_speed,
    recompute_within,
)
from meshwright.planner.solve.optimum import Choices
from meshwright.planner.solve.space import Space
from meshwright.planner.solve.work_rates import PREPARE, REWRITE

_STRETCH = 1 / 32
"""Share of the memory that values recomputed at the same time may take at most."""

_MEMORY_SHARE = 0.97
"""Share of the memory that plans of a rewritten program may use, as predicted."""

_KEPT_SHARE = _MEMORY_SHARE - _STRETCH
"""Share of the memory for all values except the recomputed ones."""

_WORTHWHILE = 0.01
"""Share of the step time that a rewrite has to save, at least.

It applies if a plan fits without the rewrite.
"""

_ACCESSES = 2
"""Number of times that a saved value passes through memory: it is written and read."""

_SIMULATIONS = 4
"""Least time to search a rewritten program, as a multiple of a simulation's time."""

_MOST_REWRITES = 4
"""Number of rewrites that are tried if no plan fits into memory.

In each, the forward pass saves less for the backward pass than in the one before.
"""

_RESERVED = 0.3
"""Share of the remaining time that is reserved for the search of a rewritten program."""


def reserve_rewrite(state: SearchState) -> SearchState:
    """Choose a rewrite that is worth a search of its own, and reserve time for that.

    Reads the solutions and their prices. Writes `rewrite` and the end of the search's
    time, or nothing if no rewrite is worthwhile or the program is rewritten already.
    """
    budget = state.budget
    left = budget.until - budget.clock()
    is_first = state.programs.earlier is None
    if is_first and _RESERVED * left >= _SIMULATIONS * budget.simulation_s:
        state.rewrite = _worthwhile_rewrite(state) or _faster_rewrite(state)
    if state.rewrite is not None:
        budget.until -= _RESERVED * (budget.until - budget.clock())
    return state


def _worthwhile_rewrite(state: SearchState) -> tuple[Mesh, Recompute] | None:
    """A mesh and a rewrite with which the fastest plan on that mesh fits into memory.

    It must stay faster than the best plan that fits without a rewrite. `None` if there
    is no such rewrite.
    """
    programs, limit = state.programs, state.task.limit
    best = min(programs.solutions.values(), key=programs.rank)
    fastest = {
        mesh: (programs.priced[mesh].pricer.seconds(s.unlimited), s.unlimited)
        for mesh, s in programs.solutions.items()
        if s.unlimited is not None
    }
    if not fastest or counts_memory(state.task.value_of, best):
        return None
    mesh = min(fastest, key=lambda mesh: fastest[mesh][0])
    seconds, choices = fastest[mesh]
    wanted_s = (1 - _WORTHWHILE) * best.seconds
    if seconds >= wanted_s:
        return None
    peak = programs.priced[mesh].pricer.peak_bytes(choices)
    excess_bytes = peak - _KEPT_SHARE * limit
    rewrite = _rewrite_within(programs, state.budget, mesh, choices, excess_bytes)
    if rewrite is None or seconds + rewrite[1] >= wanted_s:
        return None
    return mesh, rewrite[0]


def _faster_rewrite(state: SearchState) -> tuple[Mesh, Recompute] | None:
    """The mesh of the best plan, and a rewrite with which its step takes less time.

    `None` if there is no such rewrite, or if the objective counts memory.
    """
    programs, task = state.programs, state.task
    best = min(programs.solutions.values(), key=programs.rank)
    if best.bytes > task.limit or counts_memory(task.value_of, best):
        return None
    byte_s = _ACCESSES / task.space.machine.chip.hbm_bytes_per_s
    try:
        rewrite = recompute_for_speed(
            programs.priced[best.mesh],
            best.choices,
            task.space.op_prices,
            byte_s,
            _STRETCH * task.limit,
        )
    except MeshwrightError:  # ops cannot be told apart by their source lines
        return None
    finally:
        state.budget.count(REWRITE, len(task.space.graph.nodes))
    if rewrite is None or rewrite[1] < _WORTHWHILE * best.seconds:
        return None
    return best.mesh, rewrite[0]


def _rewrite_within(
    programs: MeshPrograms,
    budget: TimeBudget,
    mesh: Mesh,
    choices: Choices,
    excess_bytes: float,
) -> tuple[Recompute, float] | None:
    """A rewrite that reduces a plan's memory by `excess_bytes` per device.

    Returned with the seconds per step that its recomputation costs. `None` if there is
    no such rewrite: no value waits for a backward pass, or ops cannot be told apart by
    their source lines.
    programs: integer programs of the program before the rewrite.
    """
    task, priced = programs.task, programs.priced[mesh]
    spacing = _STRETCH * task.limit
    try:
        return recompute_within(
            priced, choices, task.space.op_prices, excess_bytes, spacing
        )
    except MeshwrightError:
        return None
    finally:
        budget.count(REWRITE, len(task.space.graph.nodes))


def rewrite_for_speed(state: SearchState) -> SearchState | None:
    """The search of a rewritten program that may have a faster plan.

    `None` if no rewrite was worthwhile, if no time is left, or after Ctrl-C. Reads
    `rewrite`.
    """
    budget = state.budget
    is_late = state.ends - budget.clock() < _SIMULATIONS * budget.simulation_s
    if state.rewrite is None or state.is_interrupted or is_late:
        return None
    return _search_of_rewritten(state, *state.rewrite)


def rewrite_to_fit(state: SearchState) -> SearchState | None:
    """The search of a rewritten program that saves less for the backward pass.

    Each search of a series saves less than the one before. The first plan that fits
    into memory ends the series, and so does the end of the time. Reads the simulated
    plans, `saved_bytes` and `rewrites`; writes these two for the next search.
    """
    smallest = state.trials.smallest()
    is_over = state.is_interrupted or state.budget.clock() >= state.budget.until
    if len(state.rewrites) >= _MOST_REWRITES or is_over:
        return None
    if smallest is None or state.trials.has_fitting:
        return None
    programs, mesh = state.programs.earlier or state.programs, smallest.mesh
    choices = programs.solutions[mesh].choices
    saved_bytes, rewrite = state.saved_bytes, None
    for _ in range(_MOST_REWRITES):  # until the rewrite is a new one
        saved_bytes += smallest.peak_memory_bytes - _KEPT_SHARE * state.task.limit
        rewrite = _rewrite_within(programs, state.budget, mesh, choices, saved_bytes)
        if rewrite is None or rewrite[0] not in state.rewrites:
            break
    if rewrite is None or rewrite[0] in state.rewrites:
        return None
    state.task.on_progress(
        f"recomputing more in the backward pass, to save {show_bytes(saved_bytes)}"
    )
    following = _search_of_rewritten(state, mesh, rewrite[0])
    following.saved_bytes = saved_bytes
    following.rewrites = (*state.rewrites, rewrite[0])
    return following


def _search_of_rewritten(
    state: SearchState, mesh: Mesh, tactic: Recompute
) -> SearchState:
    """The state of a new search, of the rewritten program on one mesh.

    The new search adds its simulated plans to those of the searches before.
    """
    programs = state.programs.earlier or state.programs
    space = programs.task.space
    rewritten = replace(
        programs.task,
        space=Space(
            space.original, space.machine, space.seed, space.tactics, (tactic,)
        ),
        meshes=(mesh,),
        memory_share=_MEMORY_SHARE,
    )
    budget = TimeBudget(state.budget.until, state.budget.meter)
    candidates = state.trials.candidates
    budget.count(PREPARE, len(rewritten.space.graph.nodes))
    return SearchState(rewritten, programs.solver, budget, candidates, programs)
