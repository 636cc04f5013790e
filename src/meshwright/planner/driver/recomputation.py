"""Rewritten programs that recompute more in the backward pass, and their searches.

If the fastest plan does not fit into memory, the program is rewritten so that its
forward pass saves less for the backward pass (rematerialization). The new program is
searched on the mesh of that plan. If no plan fits at all, the program is rewritten
several times, to save less each time.
"""

from dataclasses import replace

from meshwright.errors import MeshwrightError
from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Recompute
from meshwright.planner.candidates.proposal import counts_memory
from meshwright.planner.driver.state import SearchState
from meshwright.planner.driver.task import TimeBudget
from meshwright.planner.recompute.saved_values import recompute_within
from meshwright.planner.solve.optimum import Choices
from meshwright.planner.solve.space import Space
from meshwright.planner.solve.work_rates import PREPARE, REWRITE

_STRETCH = 1 / 32
"""Share of the memory that values recomputed at the same time may take at most."""

_MEMORY_SHARE = 0.97
"""Share of the memory that plans of a rewritten program may use, as predicted."""

KEPT_SHARE = _MEMORY_SHARE - _STRETCH
"""Share of the memory for all values except the recomputed ones."""

_WORTHWHILE = 0.01
"""Share of the step time that a rewrite has to save, at least.

It applies if a plan fits without the rewrite.
"""

SIMULATIONS = 4
"""Least time to search a rewritten program, as a multiple of a simulation's time."""

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
    if is_first and _RESERVED * left >= SIMULATIONS * budget.simulation_s:
        state.rewrite = _worthwhile_rewrite(state)
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
    rewrite = rewrite_within(state, mesh, choices, peak - KEPT_SHARE * limit)
    if rewrite is None or seconds + rewrite[1] >= wanted_s:
        return None
    return mesh, rewrite[0]


def rewrite_within(
    state: SearchState, mesh: Mesh, choices: Choices, excess_bytes: float
) -> tuple[Recompute, float] | None:
    """A rewrite that reduces a plan's memory by `excess_bytes` per device.

    Returned with the seconds per step that its recomputation costs. `None` if there is
    no such rewrite: no value waits for a backward pass, or ops cannot be told apart by
    their source lines.
    """
    priced, op_prices = state.programs.priced[mesh], state.task.space.op_prices
    spacing = _STRETCH * state.task.limit
    try:
        return recompute_within(priced, choices, op_prices, excess_bytes, spacing)
    except MeshwrightError:
        return None
    finally:
        state.budget.count(REWRITE, len(state.task.space.graph.nodes))


def search_of_rewritten(
    first: SearchState, mesh: Mesh, tactic: Recompute
) -> SearchState:
    """The state of a new search, of the rewritten program on one mesh.

    The new search adds its simulated plans to those of the first search.
    """
    space, programs = first.task.space, first.programs
    rewritten = replace(
        first.task,
        space=Space(
            space.original, space.machine, space.seed, space.tactics, (tactic,)
        ),
        meshes=(mesh,),
        memory_share=_MEMORY_SHARE,
    )
    budget = TimeBudget(first.budget.until, first.budget.meter)
    candidates = first.trials.candidates
    budget.count(PREPARE, len(rewritten.space.graph.nodes))
    return SearchState(rewritten, programs.solver, budget, candidates, programs)
