"""Two phases of a search that raise the lower bound on the best mesh's step time.

The solver works on the bound while plans are simulated.
"""

from dataclasses import replace

from meshwright.errors import MeshwrightError
from meshwright.planner.driver.mesh_programs import SHORTEST_S
from meshwright.planner.driver.state import SearchState
from meshwright.planner.solve.pricer import GOOD_ENOUGH

_ROUNDS = 2_000
"""Rounds of the solver for a tighter lower bound while plans are simulated."""


def start_lower_bound(state: SearchState) -> SearchState:
    """Start a longer solve of the best plan's mesh, to find a tighter lower bound.

    Reads the proposals and simulated plans. Writes `fits_early` and `proof`.
    """
    programs, budget, best = state.programs, state.budget, state.trials.best()
    state.fits_early = best is not None
    solution = None if best is None else programs.solutions.get(best.mesh)
    if solution is None:
        return state
    simulating_s = len(state.proposals) * budget.simulation_s
    seconds = min(budget.left_s(1), max(SHORTEST_S, simulating_s))
    is_open = solution.bound < (1 - GOOD_ENOUGH) * solution.seconds
    if is_open and seconds >= SHORTEST_S:
        priced, starts = programs.solved_at[solution.mesh], [solution.choices]
        job = programs.submit(priced, seconds, _ROUNDS, starts)
        state.proof = solution.mesh, job
    return state


def finish_lower_bound(state: SearchState) -> SearchState:
    """Wait for the solve of `start_lower_bound`, and keep its lower bound.

    Reads `proof`. Writes the bound of a solution.
    """
    if state.proof is None:
        return state
    mesh, job = state.proof
    try:
        bound = job.result().bound
    except MeshwrightError:  # the plan stands without it
        return state
    solution = state.programs.solutions[mesh]
    bound = max(solution.bound, bound)
    state.programs.solutions[mesh] = replace(solution, bound=bound)
    return state
