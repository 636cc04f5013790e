"""The state of one search, shared by its phases."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.expert_plans import ExpertPlans
from meshwright.planner.candidates.proposal import Proposal
from meshwright.planner.candidates.search_result import Spelling
from meshwright.planner.driver.first_solutions import FirstSolutions
from meshwright.planner.driver.mesh_programs import MeshPrograms
from meshwright.planner.driver.task import SearchTask
from meshwright.planner.driver.time_budget import TimeBudget
from meshwright.planner.driver.trials import Trials
from meshwright.planner.solve.solver_process import SolverProcess


@dataclass
class SearchState:
    """One search under way.

    simulated: the proposals that have been simulated, in order. spelled: the best plan of
    an integer program as ordinary tactics, if they were looked for and found.
    """

    task: SearchTask
    budget: TimeBudget
    programs: MeshPrograms
    first_solutions: FirstSolutions
    experts: ExpertPlans
    trials: Trials
    simulated: list[Proposal] = field(default_factory=list[Proposal])
    spelled: Spelling | None = None
    is_interrupted: bool = False

    @classmethod
    def of(
        cls,
        task: SearchTask,
        solver: SolverProcess,
        until: float,
        clock: Callable[[], float] = time.monotonic,
        candidates: list[Candidate] | None = None,
    ) -> Self:
        """A search about to begin; candidates: plans of earlier searches, to be shared."""
        candidates = [] if candidates is None else candidates
        budget = TimeBudget(until, clock)
        programs = MeshPrograms(task, solver, budget)
        return cls(
            task, budget, programs, FirstSolutions(programs),
            ExpertPlans(task.space, candidates), Trials(task, budget, candidates),
        )  # fmt: skip

    @property
    def candidates(self) -> list[Candidate]:
        """All plans that were simulated or refused."""
        return self.trials.candidates
