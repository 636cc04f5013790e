"""Plans by tree search: search the cuts on each mesh, then simulate what was found.

The plan in which nothing more is cut is simulated first, so that the answer is never worse.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from meshwright.errors import PlanError, SearchError
from meshwright.machine import Mesh
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.expert_plans import AS_GIVEN
from meshwright.planner.candidates.expert_strategies import expert_strategies
from meshwright.planner.candidates.meshes import shape_text
from meshwright.planner.candidates.search_result import SearchResult
from meshwright.planner.driver.task import SearchTask
from meshwright.planner.driver.trials import Trials
from meshwright.planner.tree.cut_problem import CutProblem, CutState, StateCost
from meshwright.planner.tree.search import (
    TRAJECTORIES,
    TreeSearchResult,
    make_engine,
    make_problem,
    search_cuts,
)
from meshwright.search import Budget
from meshwright.search.loop.budget import Improvement

TREE_FOUND = "tree search"
"""Name of the plans that tree search finds."""

UNCUT = "nothing cut"
"""Name of the plan in which all devices hold and compute everything."""

_SEARCH_SHARE = 0.7
"""Share of the time for searches; the rest is for simulations."""

_SIMULATIONS = 3
"""Simulations for which time is left after the searches, if it is short."""

_SHORTEST_S = 0.2
"""Seconds that a search gets at least: some dozen trajectories on a transformer."""

_RETRIES = 3
"""Searches with a tighter limit if a plan needs more memory than its price says."""

_MARGIN = 0.98
"""Share of the limit that a tighter search aims at."""


@dataclass(frozen=True, slots=True)
class TreePlan:
    """The problem and the result of the search on one mesh."""

    mesh: Mesh
    problem: CutProblem
    result: TreeSearchResult

    @property
    def rank(self) -> tuple[bool, float]:
        """Sort key: plans that fit first, then the cheapest by the model."""
        state = self.problem.follow(self.result.cuts)
        return not self.result.fits, self.problem.cost(state)


def search_trees(
    task: SearchTask, trials: Trials, started: float, with_experts: bool
) -> SearchResult:
    """The best plan that tree searches on the meshes of a task find within the budget.

    started: reading of the clock when the search began. with_experts: whether expert
    strategies are simulated on the best mesh, too. After Ctrl-C the best plan found so far
    is simulated, and no other. Raises `PlanError` if nothing fits.
    """
    run = _TreeRun(task, trials)
    run.simulate_and_search(with_experts)
    return run.result(started)


@dataclass
class _TreeRun:
    """Tree searches under way, one mesh after another, and simulations of their plans.

    num_states: states that all searches have priced. plans: the latest of each mesh.
    refused: meshes that tree search does not take, and why.
    """

    task: SearchTask
    trials: Trials
    num_states: int = 0
    is_interrupted: bool = False
    plans: dict[Mesh, TreePlan] = field(default_factory=dict[Mesh, TreePlan])
    refused: dict[Mesh, SearchError] = field(default_factory=dict[Mesh, SearchError])

    def simulate_and_search(self, with_experts: bool) -> None:
        """Search each mesh and simulate what was found, while there is time."""
        try:
            self._simulate_uncut()
            self._search_all()
            self._simulate_all()
            if with_experts:
                self._simulate_experts()
        except KeyboardInterrupt:
            self.is_interrupted = True
            if not self.plans and not self.trials.has_fitting:
                raise
            for plan in self._ranked()[:1]:
                self._simulate(plan)

    def result(self, started: float) -> SearchResult:
        """The record of the search, with the best plan first; `PlanError` if none fits."""
        trials = self.trials
        best = trials.best()
        if best is None:
            raise PlanError(trials.nothing_fits())
        others = [c for c in trials.candidates if c is not best]
        return SearchResult(
            (best, *sorted(others, key=trials.order)),
            self.task.limit,
            model_s=0.0,
            bound_s=0.0,
            seconds=trials.budget.clock() - started,
            num_meshes=len(self.plans),
            all_meshes=len(self.task.meshes) - len(self.refused),
            is_interrupted=self.is_interrupted,
            method="tree",
            num_states=self.num_states,
        )

    # -- searches ---------------------------------------------------------------------

    def _search_all(self) -> None:
        """Search each mesh; each gets an equal share of the time that is left.

        Raises `SearchError` if tree search takes none of them.
        """
        budget, meshes = self.trials.budget, self.task.meshes
        left = budget.until - budget.clock()
        seconds = min(_SEARCH_SHARE * left, budget.left_s(_SIMULATIONS))
        ends = budget.clock() + seconds
        for number, mesh in enumerate(meshes):
            now = budget.clock()
            if self.plans and now >= ends:
                return
            try:
                problem = self._problem(mesh)
            except SearchError as error:  # more axes than a code holds, for one
                self.refused[mesh] = error
                continue
            share = (ends - now) / (len(meshes) - number)
            self._search(mesh, problem, now + share - budget.clock())
        if not self.plans:
            raise self.refused[meshes[0]]

    def _problem(self, mesh: Mesh) -> CutProblem:
        task = self.task

        def value_of(cost: StateCost) -> float:
            plan = Candidate(TREE_FOUND, mesh, (), cost.seconds, int(cost.bytes))
            return task.value_of(plan)

        return make_problem(task.space, mesh, task.limit, value_of)

    def _search(self, mesh: Mesh, problem: CutProblem, seconds: float) -> TreePlan:
        """Search one mesh for so many seconds and note what was found."""
        task = self.task

        def show(improvement: Improvement, state: CutState) -> None:
            if improvement.evaluation == 1:
                return  # the start, which is no find
            cost, states = problem.measure(state), self.num_states
            task.on_progress(
                f"{TREE_FOUND} on {shape_text(mesh)}: {cost.seconds * 1e3:.1f} ms by the "
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

    def _simulate_uncut(self) -> None:
        name = AS_GIVEN if self.task.space.given else UNCUT
        self.trials.simulate(name, self.task.meshes[0], ())

    def _simulate_all(self) -> None:
        """Simulate what was found, the best by the model first, while there is time."""
        for number, plan in enumerate(self._ranked()):
            if number and not self.trials.budget.has_time(1):
                return
            found = self._simulate(plan)
            for _ in range(_RETRIES):
                result, limit = plan.result, self.task.limit
                if found.why_not or found.fits(limit) or not result.fits:
                    break
                if not self.trials.budget.has_time(1):
                    return
                factor = _MARGIN * limit / found.peak_memory_bytes
                tighter = plan.problem.within(factor * result.cost.bytes)
                plan = self._search(plan.mesh, tighter, _SHORTEST_S)
                found = self._simulate(plan)

    def _simulate_experts(self) -> None:
        best = self.trials.best()
        mesh = self.task.meshes[0] if best is None else best.mesh
        for name, tactics in expert_strategies(mesh).items():
            if not self.trials.budget.has_time(1):
                return
            self.trials.simulate(name, mesh, tactics)

    def _simulate(self, plan: TreePlan) -> Candidate:
        """Simulate one plan, unless its tactics have been simulated on its mesh."""
        tactics = (*self.task.space.given, *plan.result.tactics)
        for known in self.trials.candidates:
            if (known.mesh, known.tactics) == (plan.mesh, tactics):
                return known
        return self.trials.simulate(TREE_FOUND, plan.mesh, plan.result.tactics)

    def _ranked(self) -> list[TreePlan]:
        return sorted(self.plans.values(), key=lambda plan: plan.rank)
