"""Tree search over shardings of inputs, whose result is a list of `shard` tactics.

Several searches follow one another, as in Alabed et al., arXiv 2210.06352: each
minimizes the step time, first by shardings ("cuts") along one mesh axis, then along the
next, and last along all.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from meshwright.errors import SearchError
from meshwright.machine import Mesh
from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.workspace import matches, without_indices
from meshwright.partitioner.tactics import Shard, Workspace, shard
from meshwright.planner.columns.price_tables import MOST_AXES
from meshwright.planner.solve.space import Pricing, Space, price
from meshwright.planner.solve.work_rates import PRICE, num_entries
from meshwright.planner.strategies.symmetry import reduce_by_symmetry, split_by_inputs
from meshwright.planner.tree.cut_problem import (
    CutProblem,
    CutState,
    InputCut,
    StateCost,
    step_seconds,
)
from meshwright.planner.tree.prior import learned_prior
from meshwright.search import (
    Budget,
    Engine,
    Goal,
    Mcts,
    search_goals,
)
from meshwright.search.loop.engine import OnImprovement
from meshwright.search.work import REAL_TIME, Meter

TRAJECTORIES = 500
"""Largest number of trajectories of one search.

50 suffice on a transformer of 24 layers (docs/autoplan.md). A search that ends at this
number does not depend on the clock, so that one seed always finds the same plan.
"""

MIN_SAVING = 2e-4
"""Least share of a step's time that a cut must save; other cuts are dropped."""


@dataclass(frozen=True, slots=True)
class TreeSearchResult:
    """The best state of a tree search, and the cuts that lead to it.

    A cut shards inputs.
    cuts: the cuts that save at least `MIN_SAVING`.
    tactics: `shard` tactics that make these cuts.
    cost: predicted cost of the state.
    fits: whether the state is within the memory limit of the problem.
    evaluations: number of states whose cost was predicted.
    """

    cuts: tuple[InputCut, ...]
    tactics: tuple[Shard, ...]
    cost: StateCost
    fits: bool
    evaluations: int
    is_interrupted: bool = False


def make_engine(problem: CutProblem, seed: int) -> Engine:
    """The search algorithm: Monte Carlo tree search with the learned prior.

    With a smaller exploration constant it ends in plans that shard the sequence dim
    (docs/autoplan.md).
    """
    return Mcts(seed, exploration=1.0, prior_fn=learned_prior(problem))


def make_problem(
    space: Space,
    mesh: Mesh,
    limit: float | None = None,
    value_of: Callable[[float, float], float] = step_seconds,
    meter: Meter = REAL_TIME,
) -> CutProblem:
    """The search problem of a program on a mesh, with the user's tactics applied.

    limit: bytes of each device, by default all that the chip lets a program use.
    value_of: the objective, as in `CutProblem`.
    meter: counts the work of the search.
    """
    work = space.start(mesh)
    usable = space.machine.chip.usable_bytes
    most = usable if limit is None else limit
    return problem_on(work, space.pricing(), mesh.axes, most, value_of, meter)


def problem_on(
    work: Workspace,
    pricing: Pricing,
    axes: Sequence[str],
    limit: float,
    value_of: Callable[[float, float], float] = step_seconds,
    meter: Meter = REAL_TIME,
) -> CutProblem:
    """The search problem of sharding inputs along some axes, given earlier decisions.

    The decisions of the workspace are kept. Raises `SearchError` if the mesh has more
    (sub-)axes than the integer code of a strategy can hold.
    """
    if len(work.state.size) > MOST_AXES:
        raise SearchError(
            f"{work.mesh} needs {len(work.state.size)} (sub-)axes; tree search allows "
            f"{MOST_AXES}; use search='program'"
        )
    own = {sub_axis for axis in axes for sub_axis in work.sub_axes[axis]}
    free = tuple(sub_axis for sub_axis in work.state.size if sub_axis in own)
    reduced = split_by_inputs(work.graph, reduce_by_symmetry(work.state))
    priced = price(pricing, work, reduced, free)
    meter.count(PRICE, num_entries(priced))
    return CutProblem(priced, limit, axes, value_of, meter)


def search_cuts(
    problem: CutProblem,
    engine: Engine,
    budget: Budget,
    on_improvement: OnImprovement[CutState] | None = None,
) -> TreeSearchResult:
    """The best state that a sequence of searches finds, and the cuts that lead to it.

    The searches are those of `goals_of`. The result is the start if the state, or the
    tactics that write it, have a higher predicted cost. Ctrl-C ends the search with the
    best state so far.
    """
    results = search_goals(
        problem, goals_of(problem), engine, budget, on_improvement=on_improvement
    )
    cuts = drop_useless(problem, results[-1].actions)
    tactics, spelled = _spell_cuts(problem, cuts)
    state, start = problem.follow(cuts), problem.start()
    if max(problem.cost(state), problem.cost(spelled)) > problem.cost(start):
        cuts, tactics, state = (), (), start
    cost = problem.measure(state)
    return TreeSearchResult(
        cuts,
        tactics,
        cost,
        cost.bytes <= problem.limit,
        sum(result.evaluations for result in results),
        any(result.stopped == "interrupted" for result in results),
    )


def goals_of(problem: CutProblem) -> list[Goal[CutState, InputCut]]:
    """The searches to run: one per axis, with cuts along it, and one with all cuts.

    The last one gets a tenth of another goal's budget, since little is left to do.
    """
    goals = [
        Goal(f"time along {axis}", problem.cost, partial(_cuts_along, axis))
        for axis in problem.sub_axes
    ]
    return [*goals, Goal("time", problem.cost, share=0.1)]


def _cuts_along(
    axis: str, state: CutState, cuts: Sequence[InputCut]
) -> Sequence[InputCut]:
    """The shardings along one axis, of those that are legal in a state."""
    return [cut for cut in cuts if cut.axis == axis]


def drop_useless(problem: CutProblem, cuts: Sequence[InputCut]) -> tuple[InputCut, ...]:
    """The cuts without those that save less than `MIN_SAVING` of the time.

    A cut shards inputs. Removal is tried from the last cut to the first.
    """
    kept = tuple(cuts)
    cost = problem.cost(problem.follow(kept))
    for position in reversed(range(len(kept))):
        fewer = (*kept[:position], *kept[position + 1 :])
        other = problem.cost(problem.follow(fewer))
        if other <= cost * (1 + MIN_SAVING):
            kept, cost = fewer, other
    return kept


def _spell_cuts(
    problem: CutProblem, cuts: Sequence[InputCut]
) -> tuple[tuple[Shard, ...], CutState]:
    """One or two `shard` tactics for each cut, and the state to which they lead.

    The symmetry-reduced graph may propagate a cut further than the program does,
    because its classes can end at different layers. Inputs that only the reduced graph
    shards get a second tactic after the cut, so that all inputs end up sharded as in
    the search.
    """
    work = problem.work
    mark, num_refusals = work.state.mark(), len(work.refusals)
    tactics: list[Shard] = []
    state = problem.start()
    for cut in cuts:
        state = problem.apply(state, cut)
        wanted = _cut_dims(problem, state, cut.axis)
        members = {
            path: cut.dim
            for path, node in _leaves(problem)
            if problem.reduced_graph.class_of[node.index] == cut.group
        }
        for dims in (members, wanted):
            missing = _not_cut_yet(problem, dims, cut.axis)
            if missing:
                patterns = _patterns(missing, wanted, work.paths)
                tactic = shard(patterns, axis=cut.axis)
                tactic.apply(work)
                tactics.append(tactic)
    spelled = problem.state_from(work.state)
    work.state.rollback(mark)
    del work.refusals[num_refusals:]
    return tuple(tactics), spelled


def _cut_dims(problem: CutProblem, state: CutState, axis: str) -> dict[str, int]:
    """The dim on which an axis shards each input, by path.

    Inputs that the axis does not shard are left out.
    """
    sub_axis = problem.sub_axes[axis][0]
    dims = {
        path: int(state.cells[problem.reduced_graph.class_of[node.index], sub_axis])
        for path, node in _leaves(problem)
    }
    return {path: dim for path, dim in dims.items() if dim >= 0}


def _not_cut_yet(
    problem: CutProblem, dims: Mapping[str, int], axis: str
) -> dict[str, int]:
    """The entries of `dims` whose inputs the axis does not shard in the workspace."""
    work = problem.work
    return {
        path: dims[path]
        for path, node in _leaves(problem)
        if path in dims and not work.is_cut(node, axis)
    }


def _leaves(problem: CutProblem) -> Iterator[tuple[str, Node]]:
    work = problem.work
    return zip(work.paths, work.graph.input_nodes, strict=True)


def _patterns(
    dims: Mapping[str, int], allowed: Mapping[str, int], every: Sequence[str]
) -> dict[str, int]:
    """Path patterns that together match all paths of `dims`, with a dim for each.

    No pattern matches a path to which `allowed` gives another dim or none.
    """
    found: dict[str, int] = {}
    for path, dim in dims.items():
        wide = without_indices(path)
        if found.get(wide) == dim:
            continue
        is_safe = wide not in found and all(
            allowed.get(other) == dim for other in every if matches(wide, other)
        )
        found[wide if is_safe else path] = dim
    return found
