"""`tree_search`: a plan from cuts of inputs alone, as a list of tactics.

Goals follow one another, as in Alabed et al., arXiv 2210.06352: time along one axis, then
along the next, and at last along all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from meshwright.errors import SearchError
from meshwright.machine import Mesh
from meshwright.partitioner.decide import start_workspace
from meshwright.partitioner.tactics import Tactic, Workspace
from meshwright.planner.columns.input_families import split_by_inputs
from meshwright.planner.columns.price_tables import MOST_AXES
from meshwright.planner.prices.integer_program import IntegerProgram
from meshwright.planner.prices.live_counts import LiveCounts
from meshwright.planner.prices.symmetry import ReducedGraph, reduce_by_symmetry
from meshwright.planner.prices.value_roles import EXPOSED
from meshwright.planner.solve.space import Pricing, Space, price
from meshwright.planner.tree.cut_problem import (
    CutProblem,
    CutState,
    InputCut,
    StateCost,
)
from meshwright.planner.tree.kinds import kinds_prior
from meshwright.planner.tree.prior import learned_prior
from meshwright.planner.tree.tactics import tactics_of
from meshwright.search import (
    Annealing,
    Beam,
    Budget,
    Engine,
    Evolution,
    Goal,
    Mcts,
    Prior,
    Sampling,
    search_goals,
)

ENGINES: dict[str, Callable[[int, Prior], Engine]] = {
    "annealing": lambda seed, prior: Annealing(seed, prior_fn=prior),
    "beam": lambda seed, prior: Beam(prior_fn=prior),
    "evolution": lambda seed, prior: Evolution(seed, prior_fn=prior),
    "mcts": lambda seed, prior: Mcts(seed, exploration=1.0, prior_fn=prior),
    "sampling": lambda seed, prior: Sampling(seed, prior_fn=prior),
}
"""By name, given a seed and a prior. With one, MCTS that explores less than this ends in
plans that cut the sequence (docs/autoplan.md)."""

PRIORS: dict[str, Callable[[CutProblem], Prior]] = {
    "kinds": kinds_prior,
    "learned": learned_prior,
}
"""What says which cuts to try first, by name."""


@dataclass(frozen=True, slots=True)
class TreeSearchResult:
    """What a tree search ends with.

    cuts: those that its best state needs. cost: of that state, by the model. trials,
    evaluations: trajectories, and states that were priced.
    """

    cuts: tuple[InputCut, ...]
    tactics: tuple[Tactic, ...]
    cost: StateCost
    fits: bool
    trials: int
    evaluations: int


def tree_search(
    space: Space,
    mesh: Mesh,
    *,
    trajectories: int,
    seed: int,
    engine: str = "mcts",
    limit: float | None = None,
) -> TreeSearchResult:
    """The best plan that an engine finds for a program on a mesh.

    limit: bytes of a device, by default what the chip lets a program have.
    """
    problem = make_problem(space, mesh, limit)
    return search_cuts(problem, trajectories, make_engine(problem, engine, seed))


def make_engine(
    problem: CutProblem, name: str, seed: int, prior: str = "learned"
) -> Engine:
    """An engine by its name, with a prior for this problem by its name."""
    if name not in ENGINES:
        raise SearchError(f"engine is {name!r}; wanted one of {', '.join(ENGINES)}")
    if prior not in PRIORS:
        raise SearchError(f"prior is {prior!r}; wanted one of {', '.join(PRIORS)}")
    return ENGINES[name](seed, PRIORS[prior](problem))


def make_problem(space: Space, mesh: Mesh, limit: float | None = None) -> CutProblem:
    """A program on a mesh, to be searched as often as one likes."""
    work = start_workspace(space.captured, mesh, space.graph)
    if len(work.state.size) > MOST_AXES:
        raise SearchError(
            f"{mesh} needs {len(work.state.size)} axes; tree search takes {MOST_AXES}"
        )
    model, lives = model_of(
        space, work, split_by_inputs(work.graph, reduce_by_symmetry(work.state))
    )
    usable = space.machine.chip.usable_bytes
    return CutProblem(work, model, lives, usable if limit is None else limit)


def model_of(
    space: Space, work: Workspace, folded: ReducedGraph
) -> tuple[IntegerProgram, LiveCounts]:
    """Prices of all choices over a fold."""
    pricing = Pricing(space.machine, space.op_prices, EXPOSED)
    priced = price(pricing, work, folded, tuple(work.state.size))
    return priced.model, priced.pricer.live_counts


def search_cuts(
    problem: CutProblem, trajectories: int, engine: Engine
) -> TreeSearchResult:
    """The best state that goals in sequence lead to, and the cuts that it needs."""
    results = search_goals(
        problem, goals_of(problem), engine, Budget(trials=trajectories)
    )
    cuts = drop_useless(problem, results[-1].actions)
    cost = problem.measure(problem.follow(cuts))
    return TreeSearchResult(
        cuts,
        tactics_of(problem, cuts),
        cost,
        cost.bytes <= problem.limit,
        sum(result.trials for result in results),
        sum(result.evaluations for result in results),
    )


def goals_of(problem: CutProblem) -> list[Goal[CutState, InputCut]]:
    """Time along each axis in turn, then along all, where little is left to do."""
    goals = [Goal(f"time along {a}", problem.cost, along(a)) for a in problem.units]
    return [*goals, Goal("time", problem.cost, share=0.1)]


def along(axis: str) -> Callable[[CutState, Sequence[InputCut]], Sequence[InputCut]]:
    """Of some cuts those along an axis."""

    def keep(state: CutState, actions: Sequence[InputCut]) -> Sequence[InputCut]:
        return [action for action in actions if action.axis == axis]

    return keep


def drop_useless(problem: CutProblem, cuts: Sequence[InputCut]) -> tuple[InputCut, ...]:
    """The cuts without those that save next to nothing, the last ones first."""
    kept = tuple(cuts)
    cost = problem.cost(problem.follow(kept))
    for position in reversed(range(len(kept))):
        fewer = (*kept[:position], *kept[position + 1 :])
        other = problem.cost(problem.follow(fewer))
        if other <= cost * (1 + MIN_SAVING):
            kept, cost = fewer, other
    return kept


MIN_SAVING = 2e-4
"""Share of a step's time for which no cut is written down."""
