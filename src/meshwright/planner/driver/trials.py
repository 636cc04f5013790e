"""All simulated plans of a search, and the device program of the best one."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from meshwright.errors import MeshwrightError, PlanError
from meshwright.machine import Mesh
from meshwright.machine.memory_size import show_bytes
from meshwright.partitioner.decide import Decided, decide
from meshwright.partitioner.lower import Gather, Lowered
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.candidates.candidate import Candidate, visible_parts
from meshwright.planner.candidates.proposal import FOUND
from meshwright.planner.candidates.search_result import SearchResult
from meshwright.planner.driver.task import SearchTask, TimeBudget
from meshwright.planner.prices.value_roles import Role, exposed_by_role
from meshwright.planner.solve.work_rates import SIMULATE
from meshwright.predict.compilers.targets import compiler_of
from meshwright.predict.compilers.xla.workarounds import XLA_WORKAROUNDS
from meshwright.predict.estimate import estimate


@dataclass
class Trials:
    """All simulated plans of one program on one machine.

    candidates: plans simulated so far, also by earlier searches.
    exposed: for each mesh, the share of the collectives' time for which the step
        waited, by role of the value that they move. Taken from the latest simulated
        plan of an integer program.
    lowered: best plan that fits, and its device program.
    """

    task: SearchTask
    budget: TimeBudget
    candidates: list[Candidate]
    exposed: dict[Mesh, Mapping[Role, float]] = field(
        default_factory=dict[Mesh, Mapping[Role, float]]
    )
    lowered: tuple[Candidate, Lowered] | None = None

    def simulate(self, name: str, mesh: Mesh, tactics: Sequence[Tactic]) -> Candidate:
        """Simulate a plan of the user's tactics followed by `tactics`, and record it.

        A plan that cannot be built is recorded with the reason.
        """
        space = self.task.space
        tactics = (*space.kept_tactics, *tactics)
        began = self.budget.clock()
        try:
            decided = decide(
                space.original,
                mesh,
                tactics,
                Gather.SHARED,
                space.graph,
                XLA_WORKAROUNDS,
            )
            self._require_stored(decided)
            estimated = estimate(decided, space.machine, self.task.donate_state)
            candidate = Candidate(
                name, mesh, tactics, estimated.step_time_s, estimated.peak_memory_bytes,
                breakdown=visible_parts(estimated.breakdown), limit_bytes=self.task.limit,
            )  # fmt: skip
        except MeshwrightError as error:
            candidate = Candidate(name, mesh, tactics, why_not=str(error))
        else:
            best = self.best()
            is_better = best is None or self.order(candidate) < self.order(best)
            if candidate.fits and is_better:
                self.lowered = candidate, decided.lowered
            if name == FOUND:
                overlaps = compiler_of(space.machine).async_collectives
                self.exposed[mesh] = exposed_by_role(
                    estimated.program, estimated.timeline, overlaps
                )
        self.candidates.append(candidate)
        budget = self.budget
        budget.count(SIMULATE, len(space.graph.nodes))
        budget.simulation_s = max(budget.simulation_s, budget.clock() - began)
        if not candidate.why_not:
            memory = show_bytes(candidate.peak_memory_bytes)
            self.task.on_progress(
                f"{name} on {mesh}: {candidate.step_time_s * 1e3:.1f} ms, {memory}"
            )
        return candidate

    def _require_stored(self, decided: Decided) -> None:
        """Raise `PlanError` if weights are sharded otherwise than the task wants."""
        weights = self.task.stored_weights
        why_not = "" if weights is None else weights.why_not(decided)
        if why_not:
            raise PlanError(why_not)

    @property
    def has_fitting(self) -> bool:
        """Whether any plan simulated so far fits into memory."""
        return self.best() is not None

    def smallest(self) -> Candidate | None:
        """The simulated plan of an integer program that needs least memory.

        `None` if there is no such plan. Only plans of this task's program count, not
        those of the program before a rewrite.
        """
        kept = self.task.space.kept_tactics
        of_this_program = [
            c
            for c in self.candidates
            if c.name == FOUND and not c.why_not and c.tactics[: len(kept)] == kept
        ]
        return min(of_this_program, key=lambda c: c.peak_memory_bytes, default=None)

    def best(self) -> Candidate | None:
        """The best simulated plan that fits into memory; `None` if none fits."""
        fitting = (c for c in self.candidates if c.fits)
        return min(fitting, key=self.order, default=None)

    def order(self, candidate: Candidate) -> tuple[float, float, int, bool]:
        """A sort key of simulated plans, best first, by the task's objective.

        Of equal plans an expert's comes first, since it is easier to read.
        """
        seconds, num_bytes = candidate.step_time_s, candidate.peak_memory_bytes
        is_found = candidate.name == FOUND
        if candidate.why_not:
            return math.inf, seconds, num_bytes, is_found
        return self.task.value_of(seconds, num_bytes), seconds, num_bytes, is_found

    def ranked(self, hint: str = "") -> tuple[Candidate, ...]:
        """All simulated plans: the best that fits first, then all others in order.

        Raises `PlanError` if no plan fits. hint: text added to its message.
        """
        best = self.best()
        if best is None:
            raise PlanError(self._nothing_fits() + hint)
        others = [c for c in self.candidates if c is not best]
        return best, *sorted(others, key=self.order)

    def result(
        self,
        method: str,
        num_meshes: int,
        all_meshes: int,
        is_interrupted: bool,
        hint: str = "",
    ) -> SearchResult:
        """The report of a search, without predictions of an integer program.

        Raises `PlanError` if no plan fits. hint: text added to its message.
        """
        weights, meter = self.task.stored_weights, self.budget.meter
        return SearchResult(
            candidates=self.ranked(hint),
            limit_bytes=self.task.limit,
            model_s=0.0,
            bound_s=0.0,
            seconds=meter.real_s,
            num_meshes=num_meshes,
            all_meshes=all_meshes,
            is_interrupted=is_interrupted,
            method=method,
            work_s=meter.read(),
            is_cut=meter.is_cut,
            stored_as="" if weights is None else weights.note,
        )

    def _nothing_fits(self) -> str:
        """The error message if no plan fits: the missing memory, and remedies."""
        run = [c for c in self.candidates if not c.why_not]
        if not run:
            return "no plan was found: nothing in this program can be sharded this way"
        least = min(run, key=lambda c: c.peak_memory_bytes)
        limit = self.task.limit
        needed = least.peak_memory_bytes
        return (
            f"nothing fits: the smallest plan found ({least.name} on {least.mesh}) needs "
            f"{show_bytes(needed)} per device, and {show_bytes(limit)} are allowed; use "
            f"{math.ceil(needed / limit):,} times the chips, a batch smaller by that "
            "factor, microbatches (pipeline=True also finds one stage with them), chips "
            "with more memory, or recompute more in the backward pass (mw.recompute)"
        )
