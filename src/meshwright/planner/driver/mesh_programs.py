"""The integer programs of one search, one per mesh, and their best solutions so far.

A program chooses shardings of all values so that the step is fast and fits into memory.
To price a mesh is to predict the costs in its program, in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from meshwright.machine import Mesh
from meshwright.planner.candidates.expert_plans import spread_over_axes
from meshwright.planner.candidates.mesh_bound import MeshBound
from meshwright.planner.candidates.proposal import FOUND, Proposal, counts_memory
from meshwright.planner.driver.task import SearchTask, TimeBudget
from meshwright.planner.integer_program.projection import carry_over
from meshwright.planner.prices.value_roles import EXPOSED, Role
from meshwright.planner.solve.optimum import (
    NEAR_SMALLEST,
    Choices,
    Optimum,
    best_within,
)
from meshwright.planner.solve.solver_process import (
    SolveJob,
    SolveRequest,
    SolverProcess,
)
from meshwright.planner.solve.space import PricedProgram, solving_s
from meshwright.planner.solve.work_rates import PRICE, REPRICE, num_entries

WHOLE_S = 3.0
"""Least seconds of a first solve, and of a solve at corrected prices."""

SHORTEST_S = 2.0
"""Least seconds of any other solve."""

FIRST_ROUNDS = 60
"""Rounds of the solver for first solutions."""

_ROUNDING = 1e-9
"""Relative error of a sum of seconds."""

_ALIKE = 0.02
"""Relative difference of the objective below which two meshes count as equally good."""

MAX_RATIO = 1.2
"""Largest predicted step time of a plan worth pursuing, relative to the best plan's."""

_PRICING_GROWTH = {2: 3.0, 3: 7.0}
"""Time to price a mesh of n axes relative to n - 1, by n; measured for two: 1.5 to 5."""

_FOR_EXPERTS = 1.5
"""Time to apply and simulate expert plans on the first mesh.

It is relative to the time to price that mesh. Measured: 0.3 to 1.7."""

_FEW = 3
"""Number of meshes that are solved even if that delays the search on other meshes.

A program that cannot be sharded along one axis is far from its best on a one-axis mesh."""


@dataclass
class MeshPrograms:
    """The integer programs of a task, one per mesh, and their solutions.

    earlier: `MeshPrograms` of the program before a rewrite, if this search continues
        one.
    priced: integer program with its latest prices (costs in seconds).
    solved_at: prices with which the solution of a mesh was found.
    spread: solution of the mesh of one axis, carried over to the axes of another mesh.
    """

    task: SearchTask
    solver: SolverProcess
    budget: TimeBudget
    earlier: MeshPrograms | None = None
    priced: dict[Mesh, PricedProgram] = field(default_factory=dict[Mesh, PricedProgram])
    solutions: dict[Mesh, Proposal] = field(default_factory=dict[Mesh, Proposal])
    solved_at: dict[Mesh, PricedProgram] = field(
        default_factory=dict[Mesh, PricedProgram]
    )
    spread: dict[Mesh, Choices] = field(default_factory=dict[Mesh, Choices])
    _pricing_s: dict[int, float] = field(default_factory=dict[int, float])  # by axes
    _first_pricing_s: float = 0.0

    @property
    def limit(self) -> float:
        """Bytes of each device's memory that plans of integer programs may use."""
        return self.task.memory_share * self.task.limit

    @property
    def unsolved(self) -> list[Mesh]:
        """Meshes without a solution so far, except those that are left out."""
        done = self.solutions.keys() | self.bound.left_out.keys()
        return [mesh for mesh in self.task.meshes if mesh not in done]

    @cached_property
    def bound(self) -> MeshBound:
        """The bound by which meshes are left out of this search."""
        return MeshBound(self.task.space, self.task.meshes, self.budget.count)

    # -- first solutions ----------------------------------------------------------------

    def solve(self, soon: float, late: float, meanwhile: Callable[[], object]) -> None:
        """Price and solve the programs of meshes without a solution, if time allows.

        The first mesh is solved in any case. Any other mesh is solved if it can be done
        before the clock shows `late` while fewer than `_FEW` are solved, and `soon`
        after that. meanwhile: function that is called while the last solves are
        running.
        """
        clock, meshes, unsolved = self.budget.clock, self.task.meshes, self.unsolved
        jobs: list[tuple[Mesh, SolveJob]] = []
        num_solved = len(meshes) - len(unsolved)
        for number, mesh in enumerate(unsolved):
            is_first = mesh is meshes[0]
            if not is_first and self.bound.excludes(mesh, self.stop_bound()):
                continue
            ends = late if num_solved + len(jobs) < _FEW else soon
            needed = self._expected_pricing_s(mesh)
            needed += _FOR_EXPERTS * self._first_pricing_s
            if not is_first and clock() + needed >= ends:
                continue
            priced = self._price(mesh)
            if not is_first and clock() + solving_s(priced) >= ends:
                continue
            if jobs:
                # All jobs but the latest; also that one if it is the first.
                self._collect(jobs, max(1, len(jobs) - 1))
            share = (soon - clock()) / (len(unsolved) - number)
            starts, stop_bound = self._starts(priced), self.stop_bound()
            seconds = max(share, WHOLE_S)
            job = self.submit(priced, seconds, FIRST_ROUNDS, starts, stop_bound)
            jobs.append((mesh, job))
        if jobs:
            meanwhile()
        self._collect(jobs, len(jobs))

    def _price(self, mesh: Mesh) -> PricedProgram:
        began = self.budget.clock()
        self.task.on_progress(f"pricing {mesh}")
        priced = self.priced[mesh] = self.task.space.price(mesh)
        self.budget.count(PRICE, num_entries(priced))
        self.bound.note_priced(priced.model)
        seconds = self._pricing_s[len(mesh.axes)] = self.budget.clock() - began
        self._first_pricing_s = self._first_pricing_s or seconds
        return priced

    def _expected_pricing_s(self, mesh: Mesh) -> float:
        """Seconds to price a mesh, estimated from meshes with as many or fewer axes."""
        count = len(mesh.axes)
        fewer = self._pricing_s.get(count - 1, 0.0)
        return self._pricing_s.get(count, _PRICING_GROWTH.get(count, 1.0) * fewer)

    def _starts(self, priced: PricedProgram) -> list[Choices]:
        """Start solutions, carried over from the one-axis mesh or an earlier search."""
        first, earlier, starts = self.task.meshes[0], self.earlier, list[Choices]()
        if len(first.axes) == 1 and first in self.solutions:
            choices = self.solutions[first].choices
            spread = spread_over_axes(choices, self.priced[first], priced)
            if spread is not None:
                starts.append(spread)
                self.spread[priced.work.mesh] = spread
        if earlier is not None:
            model = earlier.priced[first].model
            choices = earlier.solutions[first].choices
            starts.append(carry_over(model, choices, priced.model))
        return starts

    def _collect(self, jobs: Sequence[tuple[Mesh, SolveJob]], most: int) -> None:
        """Wait for the first `most` solver jobs, and record their solutions."""
        for mesh, job in jobs[:most]:
            if mesh not in self.solutions:
                self.note(mesh, job.result())

    # -- solving ------------------------------------------------------------------------

    def reprice(self, mesh: Mesh, shares: Mapping[Role, float]) -> None:
        """Price a program again with overlaps of collectives as in a simulated plan.

        shares: share of the collectives' time for which the simulated step waited, by
            role of the value that they move (weight, gradient, ...). If any is above
            the assumption `EXPOSED`, each role gets the larger of share and assumption,
            since plans with more collectives wait for more of them. If none is, each
            role gets their geometric mean.
        """
        is_more = any(share > EXPOSED[role] for role, share in shares.items())
        exposed = {
            role: max(share, EXPOSED[role])
            if is_more
            else math.sqrt(share * EXPOSED[role])
            for role, share in shares.items()
        }
        self.priced[mesh] = self.task.space.reprice(self.priced[mesh], exposed)
        self.budget.count(REPRICE, num_entries(self.priced[mesh]))

    def submit(
        self, priced: PricedProgram, seconds: float, rounds: int, starts: Sequence[Choices],
        stop_bound: float = math.inf, limit: float | None = None,
    ) -> SolveJob:  # fmt: skip
        """Start to solve a mesh's program in the solver process; see `SolveRequest`."""
        limit, meter = self.limit if limit is None else limit, self.budget.meter
        request = SolveRequest(
            pricer=priced.pricer,
            limit=limit,
            seconds=seconds,
            rounds=rounds,
            starts=tuple(starts),
            stop_bound=stop_bound,
            submitted_s=meter.read(),
            net_at=meter.net_at,
        )
        return SolveJob(self.solver.submit(request), meter)

    def note(self, mesh: Mesh, optimum: Optimum) -> None:
        """Record a solution that the solver found with the latest prices of a mesh."""
        self.solutions[mesh] = self.proposal(mesh, optimum, optimum.bound)
        self.solved_at[mesh] = self.priced[mesh]
        self.task.on_progress(
            f"{FOUND} on {mesh}: {optimum.seconds * 1e3:.1f} ms predicted "
            "by the integer program"
        )

    def proposal(self, mesh: Mesh, optimum: Optimum, bound: float = 0.0) -> Proposal:
        """A proposed plan, made from a solution at the latest prices of its mesh.

        bound: lower bound on the seconds of all plans that fit; 0 if the solution was
            limited to less memory than the user allows.
        """
        return Proposal(
            name=FOUND,
            mesh=mesh,
            tactics=(self.priced[mesh].tactic(optimum, FOUND),),
            seconds=optimum.seconds,
            bytes=optimum.bytes,
            choices=optimum.choices,
            bound=bound,
            unlimited=optimum.unlimited,
        )

    def stop_bound(self) -> float:
        """Predicted seconds of a step above which no plan is of interest.

        Infinite if the objective counts memory, since slow plans may be small.
        """
        fitting = [p for p in self.solutions.values() if p.bytes <= self.limit]
        if any(counts_memory(self.task.value_of, p) for p in fitting):
            return math.inf
        return MAX_RATIO * min((p.seconds for p in fitting), default=math.inf)

    # -- comparing meshes -----------------------------------------------------------------

    def rank(self, proposal: Proposal) -> tuple[bool, float, float]:
        """A sort key of proposed plans, the most promising first."""
        return proposal.rank(self.limit, self.task.value_of)

    def ranked_meshes(self) -> list[Mesh]:
        """The solved meshes, those with the most promising solution first."""
        solved = [m for m in self.task.meshes if m in self.solutions]
        return sorted(solved, key=self._rank_mesh)

    def _rank_mesh(self, mesh: Mesh) -> tuple[bool, float]:
        """Sort key of a mesh, rounded so that nearly equal meshes keep their order."""
        is_large, value, _ = self.rank(self.solutions[mesh])
        return is_large, round(math.log(value) / _ALIKE) if value > 0 else -math.inf

    def smallest(self) -> Proposal:
        """The fastest of the solutions with about the least memory; used if none fits.

        Of nearly equal ones it is the first in the order of the meshes.
        """
        solved = [self.solutions[m] for m in self.task.meshes if m in self.solutions]
        seconds = (1 + _ALIKE) * best_within(solved, 0.0).seconds
        most = NEAR_SMALLEST * min(p.bytes for p in solved)
        return next(p for p in solved if p.bytes <= most and p.seconds <= seconds)

    # -- lower bounds -----------------------------------------------------------------

    def seconds_and_bounds(self, proposal: Proposal) -> list[tuple[float, float]]:
        """Pairs of a plan's seconds and a lower bound for all plans at the same prices.

        There may be two pairs, since a simulation changes prices: at the prices with
        which the plan was found, and at the latest ones, where the bound may be
        tighter.
        """
        pairs = [(proposal.seconds, proposal.bound)]
        if proposal.mesh in self.solutions:
            pricer = self.solved_at[proposal.mesh].pricer
            bound = self.solutions[proposal.mesh].bound
            pairs.append((pricer.finite_seconds(proposal.choices), bound))
        # The choices nearest to an expert's plan may cost less than the plan does.
        return [pair for pair in pairs if 0 < pair[1] <= pair[0] * (1 + _ROUNDING)]
