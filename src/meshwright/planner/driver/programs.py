"""The integer programs of one search: priced, solved in a process beside, and kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from meshwright.errors import MeshwrightError
from meshwright.machine import Mesh
from meshwright.planner.candidates.expert_plans import spread
from meshwright.planner.candidates.meshes import shape_text
from meshwright.planner.candidates.proposal import (
    FOUND,
    OnProgress,
    Proposal,
    ValueOf,
    counts_memory,
)
from meshwright.planner.prices.integer_program import IntegerProgram
from meshwright.planner.prices.projection import carry_over
from meshwright.planner.prices.value_roles import EXPOSED, Role
from meshwright.planner.solve.optimum import (
    NEAR_SMALLEST,
    Choices,
    Optimum,
    best_within,
)
from meshwright.planner.solve.pricer import GOOD_ENOUGH
from meshwright.planner.solve.solver_process import SolveRequest, SolverProcess
from meshwright.planner.solve.space import Priced, Space, solving_s

_MORE_AXES = {2: 3.0, 3: 7.0}
"""By number of axes, times as long as with one less the pricing of a mesh takes, about;
as measured for the step from one to two, that is 1.5 to 5."""

_FOR_FIRST = 1.5
"""Times as long as the pricing of the first mesh it takes at most, about, to read what
people do there, and to simulate some of it: 0.3 to 1.7 as measured."""

_FEW = 3
"""Meshes that are looked at even where that takes time that better solutions would have:
what cannot be cut along one axis is far from the best on such a mesh."""

WHOLE_S, SHORTEST_S = 3.0, 2.0
"""Seconds that an integer program gets at least: one of a mesh's own, and any."""

FIRST_TURNS, TURNS, _LONG_TURNS = 60, 200, 2_000
"""Of the solver on an integer program: at first, where it promises most, and beside the
simulations."""

_ROUNDING = 1e-9
"""Part of a step's seconds that counts as none."""

_ALIKE = 0.02
"""Part of what is to be small by which first solutions may be off."""

HOPELESS = 1.2
"""A plan that takes so many times as long as the best is not looked at any more."""


@dataclass
class Programs:
    """Of one program on the meshes of a machine.

    limit: bytes that a device gives, or a part of them. before: what was found for a like
    program.
    priced, own: by mesh the model with its latest prices, and the best of it that was
    found; bounds: seconds of that, and what no plan is below by the same prices, those of
    `solved`; unlimited: the best, if memory were no matter; flat: what was found on the
    mesh of one axis, with all axes in place of that.
    """

    space: Space
    beside: SolverProcess
    meshes: Sequence[Mesh]
    limit: float
    value_of: ValueOf
    clock: Callable[[], float]
    on_progress: OnProgress
    before: tuple[IntegerProgram, Choices] | None = None
    priced: dict[Mesh, Priced] = field(default_factory=dict[Mesh, Priced])
    own: dict[Mesh, Proposal] = field(default_factory=dict[Mesh, Proposal])
    bounds: dict[Mesh, tuple[float, float]] = field(
        default_factory=dict[Mesh, tuple[float, float]]
    )
    solved: dict[Mesh, Priced] = field(default_factory=dict[Mesh, Priced])
    unlimited: dict[Mesh, Choices | None] = field(
        default_factory=dict[Mesh, Choices | None]
    )
    flat: dict[Mesh, Choices] = field(default_factory=dict[Mesh, Choices])
    _longer: tuple[Mesh, Future[Optimum]] | None = None
    _pricing_s: dict[int, float] = field(default_factory=dict[int, float])  # by axes
    _first_s: float = 0.0

    def look(self, soon: float, late: float, meanwhile: Callable[[], None]) -> None:
        """A first solution for each mesh without one, while the next is being priced.

        Of a mesh with one axis it is a start for all others. The very first mesh has
        one in any case, a few more until the clock says `late`, the rest until `soon`.
        meanwhile: to be done where the last ones are still being solved.
        """
        jobs: list[tuple[Mesh, Future[Optimum]]] = []
        unseen = self.unseen
        seen = len(self.meshes) - len(unseen)
        for number, mesh in enumerate(unseen):
            is_first = mesh is self.meshes[0]
            ends = late if seen + len(jobs) < _FEW else soon
            needed = self._about_s(mesh) + _FOR_FIRST * self._first_s
            if not is_first and self.clock() + needed >= ends:
                continue
            began = self.clock()
            self.on_progress(f"pricing {shape_text(mesh)}")
            priced = self.priced[mesh] = self.space.price(mesh)
            self._pricing_s[len(mesh.axes)] = self.clock() - began
            self._first_s = self._first_s or self.clock() - began
            if not is_first and self.clock() + solving_s(priced) >= ends:
                continue
            if jobs:  # the one before may take long, but for the first
                self._collect(jobs, max(1, len(jobs) - 1))
            share = (soon - self.clock()) / (len(unseen) - number)
            starts = self._starts(priced)
            seconds = max(share, WHOLE_S)
            job = self.ask(priced, seconds, FIRST_TURNS, starts, self.worthless())
            jobs.append((mesh, job))
        if not all(job.done() for _, job in jobs):
            meanwhile()
        self._collect(jobs, len(jobs))

    @property
    def unseen(self) -> list[Mesh]:
        """Meshes that have no solution so far."""
        return [mesh for mesh in self.meshes if mesh not in self.own]

    def _about_s(self, mesh: Mesh) -> float:
        """Seconds that the pricing of a mesh takes, about, by those of fewer axes."""
        count = len(mesh.axes)
        fewer = self._pricing_s.get(count - 1, 0.0)
        return self._pricing_s.get(count, _MORE_AXES.get(count, 1.0) * fewer)

    def _starts(self, priced: Priced) -> list[Choices]:
        """What was found on the first mesh, and for a like program before."""
        starts: list[Choices] = []
        first = self.meshes[0]
        if len(first.axes) == 1 and first in self.own:
            flat = spread(self.own[first].choices, self.priced[first], priced)
            if flat is not None:
                starts.append(flat)
                self.flat[priced.work.mesh] = flat
        if self.before is not None:
            starts.append(carry_over(*self.before, priced.model))
        return starts

    def _collect(self, jobs: Sequence[tuple[Mesh, Future[Optimum]]], most: int) -> None:
        """Note the first so many answers, each once."""
        for mesh, job in jobs[:most]:
            if mesh not in self.own:
                self.note(mesh, job.result())

    def price_again(self, mesh: Mesh, shares: Mapping[Role, float]) -> Priced:
        """With the shares of collectives that a step waited for, by role.

        Where they are more than was thought that is so for the plan, and those that are
        less are not believed yet: with more collectives there is more to wait for. Where
        all are less it is tried what that leads to, half way.
        """
        is_more = any(share > EXPOSED[role] for role, share in shares.items())
        exposed = {
            role: max(share, EXPOSED[role])
            if is_more
            else math.sqrt(share * EXPOSED[role])
            for role, share in shares.items()
        }
        priced = self.space.price_again(self.priced[mesh], exposed)
        self.priced[mesh] = priced
        return priced

    def ask(
        self, priced: Priced, seconds: float, turns: int, starts: Sequence[Choices],
        worthless: float = math.inf, limit: float | None = None,
    ) -> Future[Optimum]:  # fmt: skip
        """The best choices by a mesh's prices, once they are there; see `SolveRequest`."""
        limit = self.limit if limit is None else limit
        question = SolveRequest(
            priced.pricer, limit, seconds, turns, tuple(starts), worthless
        )
        return self.beside.submit(question)

    def note(self, mesh: Mesh, optimum: Optimum) -> None:
        """Keep what was found by the latest prices of a mesh."""
        self.bounds[mesh] = optimum.seconds, optimum.bound
        self.solved[mesh] = self.priced[mesh]
        self.unlimited[mesh] = optimum.unlimited
        self.own[mesh] = self.proposal(mesh, optimum)
        self.on_progress(
            f"{FOUND} on {shape_text(mesh)}: {optimum.seconds * 1e3:.1f} ms by the program"
        )

    def proposal(self, mesh: Mesh, optimum: Optimum) -> Proposal:
        """What choices by the latest prices of a mesh come to.

        Of an optimum within less memory than there is the bound says nothing about all.
        """
        return Proposal(
            FOUND, mesh, (self.priced[mesh].tactic(optimum, FOUND),),
            optimum.seconds, optimum.bytes, optimum.choices, optimum.bound,
        )  # fmt: skip

    def worthless(self) -> float:
        """Seconds of a step for which no plan is wanted; slow ones may be small."""
        fitting = [p for p in self.own.values() if p.bytes <= self.limit]
        if any(counts_memory(self.value_of, p) for p in fitting):
            return math.inf
        return HOPELESS * min((p.seconds for p in fitting), default=math.inf)

    def rank(self, proposal: Proposal) -> tuple[bool, float, float]:
        """The smaller the more a plan promises."""
        return proposal.rank(self.limit, self.value_of)

    def by_promise(self) -> list[Mesh]:
        """The meshes, those first that the integer program likes best."""
        known = sorted((m for m in self.meshes if m in self.own), key=self._promise)
        return [*known, *(m for m in self.meshes if m not in self.own)]

    def _promise(self, mesh: Mesh) -> tuple[bool, float]:
        """What solutions hardly tell apart goes in the order of the meshes."""
        is_large, value, _ = self.rank(self.own[mesh])
        return is_large, round(math.log(value) / _ALIKE) if value > 0 else -math.inf

    def leanest(self) -> Proposal:
        """Of plans none of which fits, the fastest of those about the smallest.

        What solutions hardly tell apart goes in the order of the meshes.
        """
        own = [self.own[mesh] for mesh in self.meshes if mesh in self.own]
        seconds = (1 + _ALIKE) * best_within(own, 0.0).seconds
        most = NEAR_SMALLEST * min(p.bytes for p in own)
        return next(p for p in own if p.bytes <= most and p.seconds <= seconds)

    @property
    def is_solving(self) -> bool:
        """Whether the process beside is at a program that nobody waits for."""
        return self._longer is not None

    def solve_longer(self, mesh: Mesh, seconds: float) -> None:
        """A mesh's program once more, in time that simulations take.

        Only the bound is taken of it: how far it comes is a matter of time.
        """
        if mesh not in self.own:
            return
        known_s, bound = self.bounds[mesh]
        if bound < (1 - GOOD_ENOUGH) * known_s and seconds >= SHORTEST_S:
            starts = [self.own[mesh].choices]
            job = self.ask(self.solved[mesh], seconds, _LONG_TURNS, starts)
            self._longer = mesh, job

    def note_bound(self, seconds: float) -> None:
        """Keep what `solve_longer` came to, if it does so within so many."""
        if self._longer is None:
            return
        mesh, job = self._longer
        seconds, bound = self.bounds[mesh]
        try:
            bound = max(bound, job.result(max(0.0, seconds)).bound)
        except (MeshwrightError, TimeoutError):  # what is found stands without it
            return
        self.bounds[mesh] = seconds, bound

    def proofs(self, proposal: Proposal) -> list[tuple[float, float]]:
        """Seconds of a plan by prices of its mesh, and what no plan is below by these.

        Prices change once a plan has been simulated: by those that it was found by, and
        by the last ones, on which a bound may have been sought for longer.
        """
        proofs = [(proposal.seconds, proposal.bound)]
        if proposal.mesh in self.solved:
            pricer = self.solved[proposal.mesh].pricer
            bound = self.bounds[proposal.mesh][1]
            proofs.append((pricer.finite_seconds(proposal.choices), bound))
        # An expert's nearest choices may be less than what they stand for.
        return [proof for proof in proofs if 0 < proof[1] <= proof[0] * (1 + _ROUNDING)]
