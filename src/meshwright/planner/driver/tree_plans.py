"""Plans by tree search: search shardings on each mesh, then simulate the plans found.

A cut splits a dim along a mesh axis. The plan with no cuts beyond the user's tactics is
simulated first, so that the answer is never worse.
"""

from dataclasses import dataclass, field, replace

from meshwright.errors import SearchError
from meshwright.machine import Mesh
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.expert_plans import AS_GIVEN, expert_strategies
from meshwright.planner.candidates.search_result import SearchResult
from meshwright.planner.driver.simulation import RETRIES, RETRY_MARGIN
from meshwright.planner.driver.task import SearchTask
from meshwright.planner.driver.trials import Trials
from meshwright.planner.tree.cut_problem import CutProblem, CutState
from meshwright.planner.tree.tree_search import (
    TRAJECTORIES,
    TreeSearchResult,
    make_engine,
    make_problem,
    search_cuts,
)
from meshwright.search import Budget, Improvement

TREE_FOUND = "tree search"
"""Name of all plans that tree search finds."""

UNCUT = "nothing cut"
"""Name of the plan in which every device holds and computes everything."""

_SEARCH_SHARE = 0.7
"""Share of the time for tree searches; the rest is for simulations."""

_SIMULATIONS = 3
"""Number of simulations for which time is kept; tree searches get the rest at most."""

_SHORTEST_S = 0.2
"""Least seconds of a tree search: about some dozen trajectories on a transformer."""


@dataclass(frozen=True, slots=True)
class TreePlan:
    """The problem and the result of the tree search on one mesh."""

    mesh: Mesh
    problem: CutProblem
    result: TreeSearchResult

    @property
    def rank(self) -> tuple[bool, float]:
        """A sort key: plans that fit into memory first, then by predicted objective."""
        state = self.problem.follow(self.result.cuts)
        return not self.result.fits, self.problem.cost(state)


def search_trees(task: SearchTask, trials: Trials) -> SearchResult:
    """Search a plan with tree searches on all meshes of a task, within the budget.

    After Ctrl-C only the best plan found so far is simulated. Raises `PlanError` if
    nothing fits into memory.
    """
    run, is_interrupted = _TreeRun(task, trials), False
    try:
        trials.simulate(
            AS_GIVEN if task.space.kept_tactics else UNCUT, task.meshes[0], ()
        )
        run.search_all()
        run.simulate_all()
        if task.with_experts:
            run.simulate_experts()
    except KeyboardInterrupt:
        is_interrupted = True
        if not run.plans and not trials.has_fitting:
            raise
        for plan in run.ranked()[:1]:
            run.simulate(plan)
    num_meshes = len(task.meshes) - len(run.refused)
    result = trials.result("tree", len(run.plans), num_meshes, is_interrupted)
    return replace(result, num_states=run.num_states)


@dataclass
class _TreeRun:
    """Tree searches under way, one mesh after another, and simulations of their plans.

    num_states: number of states (sets of cuts) whose cost all searches computed.
    plans: latest plan found on each mesh.
    refused: meshes that tree search cannot handle, and why.
    """

    task: SearchTask
    trials: Trials
    num_states: int = 0
    plans: dict[Mesh, TreePlan] = field(default_factory=dict[Mesh, TreePlan])
    refused: dict[Mesh, SearchError] = field(default_factory=dict[Mesh, SearchError])

    # -- searches ---------------------------------------------------------------------

    def search_all(self) -> None:
        """Search all meshes; each gets an equal share of the time that is left.

        Raises `SearchError` if tree search can handle none of the meshes.
        """
        task, budget, meshes = self.task, self.trials.budget, self.task.meshes
        left = budget.until - budget.clock()
        seconds = min(_SEARCH_SHARE * left, budget.left_s(_SIMULATIONS))
        ends = budget.clock() + seconds
        for number, mesh in enumerate(meshes):
            now = budget.clock()
            if self.plans and now >= ends:
                return
            try:
                problem = make_problem(
                    task.space, mesh, task.limit, task.value_of, budget.meter
                )
            except SearchError as error:  # more axes than a code holds, for one
                self.refused[mesh] = error
                continue
            share = (ends - now) / (len(meshes) - number)
            self._search(mesh, problem, now + share - budget.clock())
        if not self.plans:
            raise self.refused[meshes[0]]

    def _search(self, mesh: Mesh, problem: CutProblem, seconds: float) -> TreePlan:
        """Run tree search on one mesh for so many seconds, and record its plan."""
        task = self.task

        def show(improvement: Improvement, state: CutState) -> None:
            if improvement.evaluation == 1:
                return  # the start, which is not a found plan
            cost, states = problem.measure(state), self.num_states
            task.on_progress(
                f"{TREE_FOUND} on {mesh}: {cost.seconds * 1e3:.1f} ms by the "
                f"model, {states + improvement.evaluation} states"
            )

        clock = self.trials.budget.clock
        budget = Budget(max(seconds, _SHORTEST_S), None, TRAJECTORIES, clock)
        engine = make_engine(problem, task.space.seed)
        result = search_cuts(problem, engine, budget, show)
        self.num_states += result.evaluations
        plan = self.plans[mesh] = TreePlan(mesh, problem, result)
        if result.is_interrupted:
            raise KeyboardInterrupt
        return plan

    # -- simulations ------------------------------------------------------------------

    def simulate_all(self) -> None:
        """Simulate the plans found, the best by prediction first, while there is time.

        If a plan does not fit as predicted, its mesh is searched again with a lower
        memory limit.
        """
        for number, plan in enumerate(self.ranked()):
            if number and not self.trials.budget.has_time(1):
                return
            candidate = self.simulate(plan)
            for _ in range(RETRIES):
                result, limit = plan.result, self.task.limit
                if candidate.why_not or candidate.fits or not result.fits:
                    break
                if not self.trials.budget.has_time(1):
                    return
                factor = RETRY_MARGIN * limit / candidate.peak_memory_bytes
                tighter = plan.problem.within(factor * result.cost.bytes)
                plan = self._search(plan.mesh, tighter, _SHORTEST_S)
                candidate = self.simulate(plan)

    def simulate_experts(self) -> None:
        """Simulate expert strategies on all meshes, while there is time.

        The mesh of the best plan comes first.
        """
        best = self.trials.best()
        first = self.task.meshes[0] if best is None else best.mesh
        for mesh in sorted(self.task.meshes, key=lambda mesh: mesh != first):
            for name, tactics in expert_strategies(mesh).items():
                if not self.trials.budget.has_time(1):
                    return
                self.trials.simulate(name, mesh, tactics)

    def simulate(self, plan: TreePlan) -> Candidate:
        """Simulate one plan, unless its tactics have been simulated on its mesh."""
        tactics = (*self.task.space.kept_tactics, *plan.result.tactics)
        for candidate in self.trials.candidates:
            if (candidate.mesh, candidate.tactics) == (plan.mesh, tactics):
                return candidate
        return self.trials.simulate(TREE_FOUND, plan.mesh, plan.result.tactics)

    def ranked(self) -> list[TreePlan]:
        """The latest plan found on each mesh, the best by prediction first."""
        return sorted(self.plans.values(), key=lambda plan: plan.rank)
