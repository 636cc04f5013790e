"""The result of a finished search: all candidates, the best first, and how good it is."""

from __future__ import annotations

from meshwright.errors import PlanError
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.search_result import SearchResult
from meshwright.planner.driver.state import SearchState


def search_result(state: SearchState, started: float) -> SearchResult:
    """The candidates of a search and its lower bound; `PlanError` if nothing fits.

    started: reading of the search's clock when it began.
    """
    trials, best = state.trials, state.trials.best()
    if best is None:
        raise PlanError(trials.nothing_fits() + _skipped_meshes(state))
    rest = [c for c in trials.candidates if c is not best]
    model_s, bound_s = _proof(state, best)
    return SearchResult(
        (best, *sorted(rest, key=trials.order)),
        state.task.limit,
        model_s,
        bound_s,
        state.budget.clock() - started,
        *_num_meshes(state),
        state.is_interrupted,
        state.spelled,
    )


def _num_meshes(state: SearchState) -> tuple[int, int]:
    """Number of meshes that were solved, and of all, earlier searches included."""
    solved, known = len(state.programs.solutions), len(state.task.meshes)
    earlier = state.task.earlier
    if earlier is None:
        return solved, known
    return max(solved, earlier.num_solved), max(known, earlier.num_meshes)


def _skipped_meshes(state: SearchState) -> str:
    """The end of an error message, if a longer search might have found a plan."""
    solved, known = _num_meshes(state)
    if solved == known:
        return ""
    return f"; there was time for {solved} of {known} meshes, raise budget_s for more"


def _proof(state: SearchState, plan: Candidate) -> tuple[float, float]:
    """Predicted seconds of a plan and their lower bound, from the prices that fit best.

    A plan that was written as tactics has no prices: its mesh's own solution stands in.
    """
    own = plan.tactics[len(state.task.space.given) :]
    proofs = [
        proof
        for proposal in state.simulated
        if (proposal.mesh, proposal.tactics) == (plan.mesh, own)
        for proof in state.programs.proofs(proposal)
    ]
    solution = state.programs.solutions.get(plan.mesh)
    known = (0.0, 0.0) if solution is None else (
        solution.proposal.seconds, solution.bound,
    )  # fmt: skip
    return max(proofs, key=lambda proof: proof[1] / proof[0], default=known)
