"""The state of one search for a plan, which its phases share, and its result."""

from dataclasses import replace

from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Recompute
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.expert_plans import ExpertPlans
from meshwright.planner.candidates.proposal import Proposal
from meshwright.planner.candidates.search_result import SearchResult, Spelling
from meshwright.planner.driver.mesh_programs import MeshPrograms
from meshwright.planner.driver.task import SearchTask, TimeBudget
from meshwright.planner.driver.trials import Trials
from meshwright.planner.solve.solver_process import SolveJob, SolverProcess
from meshwright.planner.solve.work_rates import READ_EXPERT


class SearchState:
    """One search for a plan under way: each phase takes it, changes it and returns it.

    It is one record that changes, so that a search that is interrupted within a phase
    keeps what it has.
    started, ends: clock readings at which the search starts and has to end.
    proposals: plans to simulate.
    may_fit: whether the first solution of any mesh may fit into memory.
    fits_early: whether a plan fitted before the proposals were simulated.
    simulated: proposed plans that have been simulated, in order.
    rewrite: mesh and tactic of a rewritten program that is worth a search of its own.
    rewrites, saved_bytes: rewrites tried so far because no plan fitted, and bytes that
        the last of them saves.
    proof: mesh and solver's job that raises its lower bound while plans are simulated.
    spelled: best plan of an integer program as ordinary tactics, if they were looked
        for and found.
    looped: simulated plans for which product loops were tried.
    candidates: list of simulated plans that an earlier search started, if any.
    earlier: integer programs of that search, as in `MeshPrograms`.
    """

    def __init__(
        self,
        task: SearchTask,
        solver: SolverProcess,
        budget: TimeBudget,
        candidates: list[Candidate] | None = None,
        earlier: MeshPrograms | None = None,
    ) -> None:
        candidates = [] if candidates is None else candidates
        self.task = task
        self.budget = budget
        self.started, self.ends = budget.clock(), budget.until
        self.programs = MeshPrograms(task, solver, self.budget, earlier)
        self.experts = ExpertPlans(task.space, candidates)
        self.trials = Trials(task, self.budget, candidates)
        self.proposals: list[Proposal] = []
        self.may_fit = self.fits_early = False
        self.simulated: list[Proposal] = []
        self.rewrite: tuple[Mesh, Recompute] | None = None
        self.rewrites: tuple[Recompute, ...] = ()
        self.saved_bytes = 0.0
        self.proof: tuple[Mesh, SolveJob] | None = None
        self.spelled: Spelling | None = None
        self.looped: list[Candidate] = []
        self.is_interrupted = False

    def reading_at(self, share: float) -> float:
        """The clock reading at which a share of the search's time is over."""
        return self.started + share * (self.ends - self.started)

    def experts_on(self, mesh: Mesh) -> list[Proposal]:
        """Plans of the expert strategies on a mesh, with costs at its current prices.

        The list is empty if the task excludes expert strategies.
        """
        if not self.task.with_experts:
            return []
        is_read = bool(self.experts.choices_on(mesh))
        proposals = self.experts.on(mesh, self.programs.priced[mesh])
        if not is_read:
            num_nodes = len(self.task.space.graph.nodes)
            self.budget.count(READ_EXPERT, num_nodes * (1 + len(proposals)))
        return proposals

    def result(self) -> SearchResult:
        """The report of this search.

        Raises `PlanError` if no simulated plan fits into memory.
        """
        first = self.programs.earlier or self.programs
        num_solved = max(len(self.programs.solutions), len(first.solutions))
        num_meshes = len(first.task.meshes) - len(first.bound.left_out)
        skipped = (
            f"; there was time for {num_solved} of {num_meshes} meshes, raise budget_s "
            "for more"
        )
        hint = skipped if num_solved < num_meshes else ""
        result = self.trials.result(
            "program", num_solved, num_meshes, self.is_interrupted, hint
        )
        best = result.candidates[0]
        model_s, bound_s = self._seconds_and_bound(best)
        return replace(
            result,
            model_s=model_s,
            bound_s=bound_s,
            bounded=_bounded(best),
            spelled=self.spelled,
            left_out=first.bound.note,
        )

    def _seconds_and_bound(self, plan: Candidate) -> tuple[float, float]:
        """A plan's seconds by the integer program, and a lower bound at equal prices.

        Of all prices used, those with the smallest gap count. A plan that is given as
        tactics has no predicted seconds; the numbers of its mesh's solution are
        returned.
        """
        searched_tactics = plan.tactics[len(self.task.space.kept_tactics) :]
        pairs = [
            pair
            for proposal in self.simulated
            if (proposal.mesh, proposal.tactics) == (plan.mesh, searched_tactics)
            for pair in self.programs.seconds_and_bounds(proposal)
        ]
        solution = self.programs.solutions.get(plan.mesh)
        of_mesh = (0.0, 0.0) if solution is None else (solution.seconds, solution.bound)
        return max(pairs, key=lambda pair: pair[1] / pair[0], default=of_mesh)


def _bounded(plan: Candidate) -> str:
    """The plans that an integer program compares with a plan: on its mesh, of its program.

    Combined collectives, and loops beside products, are none of its choices.
    """
    is_rewritten = any(isinstance(tactic, Recompute) for tactic in plan.tactics)
    program = (
        "recompute what this plan does" if is_rewritten else "recompute nothing more"
    )
    return f"shardings on {plan.mesh} that {program}"
