"""From a step and a machine to the best plan that was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial

from meshwright.errors import PlanError
from meshwright.machine import Mesh
from meshwright.partitioner.lower import Gather
from meshwright.planner.candidates.candidate import Candidate, Search, Spelling
from meshwright.planner.candidates.expert_plans import Experts
from meshwright.planner.candidates.meshes import shape_text
from meshwright.planner.candidates.proposal import (
    FOUND,
    OnProgress,
    Proposal,
    ValueOf,
    in_turns,
)
from meshwright.planner.driver.programs import (
    FIRST_TURNS,
    HOPELESS,
    SHORTEST_S,
    TURNS,
    WHOLE_S,
    Programs,
)
from meshwright.planner.driver.smaller_plans import find_smaller
from meshwright.planner.driver.trials import Trials
from meshwright.planner.prices.integer_program import IntegerProgram
from meshwright.planner.solve.optimum import Choices, Optimum
from meshwright.planner.solve.solver_process import SolverProcess
from meshwright.planner.solve.space import Priced, Space, solving_s
from meshwright.planner.spelling.spelling import spell
from meshwright.predict.compilers.rules import RULES

SPELLED = "auto, spelled"

_FOR_LOOKS, _FOR_PROGRAMS, _FOR_LESS = 0.35, 0.65, 0.8
"""Shares of the time until each mesh has a first solution, until those that promise most
have a better one, and, where memory counts, others that take less of it; the rest is for
simulations."""

_REFINED = 3
"""Meshes on which experts' strategies are read and the program is solved again."""

_REFINING = 3
"""Simulations' worth of time that it takes at least to price and solve once more."""

_READING = 4
"""Simulations' worth of time that it takes at least to read experts' strategies on a mesh
and to simulate one."""

_LAST = 2
"""Simulations' worth of time that is left when the first refined plan has its turn."""

_FOR_PLAN = 0.9
"""Simulations' worth of time that it takes to make the plan in the end."""

_FOR_SPELLING = 3
"""Simulations' worth of time that it takes at least to find tactics for a plan."""

_MOST_SPELLED = 1.2
"""Times as long as the plan that its tactics may take to be told."""

_TOO_LARGE = 1.1
"""Of the memory that there is, by the model, from which on nobody waits for a plan."""

_RETRIES = 3
"""Times that the limit of memory is tightened where the simulation needs more."""


@dataclass
class Searcher:
    """One search under way.

    limit: bytes that a device gives. until: when the clock says this, the best so far is
    the answer. before: what was found for a like program, before less was kept; what is
    too large is not looked at again then. aim: share of the limit that integer programs
    get. smaller: what takes less memory, where that counts. reserved: asked once the
    first plan has been simulated, seconds that are for something else. num_before,
    all_before: meshes that searches before this one have looked at, and that they had.
    """

    space: Space
    beside: SolverProcess
    meshes: Sequence[Mesh]
    limit: float
    until: float
    value_of: ValueOf
    clock: Callable[[], float] = time.monotonic
    on_progress: OnProgress = lambda text: None
    gather: Gather = Gather.SHARED
    reserved: Callable[[Searcher], float] = lambda searcher: 0.0
    candidates: list[Candidate] = field(default_factory=list)
    spelled: Spelling | None = None
    before: tuple[IntegerProgram, Choices] | None = None
    aim: float = 1.0
    smaller: list[Proposal] = field(default_factory=list[Proposal])
    num_before: int = 0
    all_before: int = 0
    experts: Experts = field(init=False)
    trials: Trials = field(init=False)
    programs: Programs = field(init=False)
    is_interrupted: bool = False
    _simulated: list[Proposal] = field(default_factory=list[Proposal])

    def __post_init__(self) -> None:
        self.experts = Experts(self.space, self.candidates)
        self.trials = Trials(
            self.space, self.limit, self.value_of, self.clock, self.on_progress,
            self.gather, self.candidates,
        )  # fmt: skip
        self.programs = Programs(
            self.space, self.beside, self.meshes, self.aim * self.limit, self.value_of,
            self.clock, self.on_progress, self.before,
        )  # fmt: skip

    def run(self, with_experts: bool) -> None:
        """Look at all meshes, and simulate what promises most, while there is time."""
        try:
            proposals = self._propose(with_experts)
            best = self.trials.best()
            if best is not None:
                self.programs.solve_longer(best.mesh, self._left_s(1))
            self._simulate_all(proposals)
            if with_experts and not self.trials.has_fitting:
                self._simulate_all(self._that_may_fit())
            if best is not None:
                self._look_again(with_experts)
            self._spell()
            for mesh in self._unread() if with_experts and best is not None else ():
                known = self.experts.on(mesh, self.programs.priced[mesh])
                self._simulate_all(known)
            self.programs.note_bound(self._left_s(0))
        except KeyboardInterrupt:
            self.is_interrupted = True
            if not self.trials.has_fitting:
                if not self.programs.own:
                    raise
                best = min(self.programs.own.values(), key=self.programs.rank)
                self.trials.simulate(best.name, best.mesh, best.tactics)

    def found(self, started: float) -> Search:
        """What came out, the best first; `PlanError` where nothing fits."""
        best = self.trials.best()
        if best is None:
            raise PlanError(self.trials.nothing_fits() + self._cut_short())
        rest = [c for c in self.candidates if c is not best]
        model_s, bound_s = self._proven(best)
        return Search(
            (best, *sorted(rest, key=self.trials.order)),
            self.limit,
            model_s,
            bound_s,
            self.clock() - started,
            *self._looked_at(),
            self.is_interrupted,
            self.spelled,
        )

    def _looked_at(self) -> tuple[int, int]:
        """Of how many meshes something is known, and how many there are."""
        seen = max(len(self.programs.own), self.num_before)
        return seen, max(len(self.meshes), self.all_before)

    def _cut_short(self) -> str:
        """What an error adds where a longer search might have found something."""
        seen, known = self._looked_at()
        if seen == known:
            return ""
        return f"; there was time for {seen} of {known} meshes, budget_s may be larger"

    def _proven(self, plan: Candidate) -> tuple[float, float]:
        """What `Programs.proofs` has on a plan, the tightest.

        A spelled plan, which no prices are of, goes by the program's own solution.
        """
        own = plan.tactics[len(self.space.given) :]
        proofs = [
            proof
            for proposal in self._simulated
            if (proposal.mesh, proposal.tactics) == (plan.mesh, own)
            for proof in self.programs.proofs(proposal)
        ]
        known = self.programs.bounds.get(plan.mesh, (0.0, 0.0))
        return max(proofs, key=lambda proof: proof[1] / proof[0], default=known)

    # -- by the model -----------------------------------------------------------------

    def _propose(self, with_experts: bool) -> list[Proposal]:
        """What integer programs and experts make of the meshes that promise most."""
        started = self.clock()
        left = self.until - started
        read_first = self._read_first if with_experts else lambda: None
        soon, late = (started + share * left for share in (_FOR_LOOKS, _FOR_PROGRAMS))
        self.programs.look(soon, late, read_first)
        if all(p.bytes > self._most for p in self.programs.own.values()):
            least = self.programs.leanest()
            priced = self.programs.priced[least.mesh]
            known = self.experts.on(least.mesh, priced) if with_experts else []
            return [least, *(p for p in known if p.bytes <= self._most)]
        experts = self._refine(started + _FOR_PROGRAMS * left, with_experts)
        ends = started + _FOR_LESS * left
        self.smaller += find_smaller(self.programs, self.experts, ends)
        return [*self.programs.own.values(), *self.smaller, *experts]

    @property
    def _most(self) -> float:
        """Bytes by the model from which on nothing can fit.

        What a compiler places on the chip takes no memory, which no price sees.
        """
        machine = self.space.machine
        on_chip = RULES[machine.compiler].places * machine.chip.room_bytes
        return self.limit + on_chip

    def _that_may_fit(self) -> list[Proposal]:
        """What people do where some plan may fit, though none has so far."""
        programs, known = self.programs, list[Proposal]()
        for mesh in programs.by_promise():
            if mesh in programs.own and programs.own[mesh].bytes <= self._most:
                known += self.experts.on(mesh, programs.priced[mesh])
        return [p for p in known if p.bytes <= self._most]

    def _read_first(self) -> None:
        """What people do on the mesh that is looked at first, mostly that of one axis."""
        self.experts.on(self.meshes[0], self.programs.priced[self.meshes[0]])

    def _refine(self, ends: float, with_experts: bool) -> list[Proposal]:
        """Simulate the best plans, and solve once more; what experts do there."""
        programs = self.programs
        experts: list[Proposal] = []
        better: list[tuple[Proposal, Priced, Future[Optimum]]] = []
        first, *others = [m for m in programs.by_promise() if m in programs.own]
        for mesh in (first, *others[: _REFINED - 1]):
            own = programs.own[mesh]
            if mesh is not first and not self._is_worthwhile(own, bool(better), ends):
                continue
            if not self._is_flat(own):
                self._simulate_one(own)
            if mesh is first:
                self.until -= self.reserved(self)
            if not self._has_time_to_refine(mesh, ends):
                continue
            exposed = self.trials.exposed.get(mesh, {})
            priced = programs.price_again(mesh, exposed)
            known = self.experts.on(mesh, priced) if with_experts else []
            starts = [own.choices, *(expert.choices for expert in known)]
            seconds = max(ends - self.clock(), WHOLE_S)
            better.append((own, priced, programs.ask(priced, seconds, TURNS, starts)))
            if known and not experts and self._has_time(1):  # while it is being solved
                best = min(known, key=programs.rank)
                if not self._is_in_vain(best):
                    self._simulate_one(best)
            experts += known
        if with_experts and not experts:
            found = self.trials.best()
            # What a search before this one has simulated may lie on another mesh.
            is_own = found is not None and found.mesh in programs.priced
            mesh = found.mesh if found is not None and is_own else first
            experts = self.experts.on(mesh, programs.priced[mesh])
        self._note_better(better)
        return experts

    def _is_worthwhile(self, own: Proposal, is_solving: bool, ends: float) -> bool:
        """Whether a plan on a mesh that is not the first is looked at before experts."""
        if is_solving and self.clock() >= ends:
            return False
        return self._has_time(1) and own.seconds <= self.programs.worthless()

    def _has_time_to_refine(self, mesh: Mesh, ends: float) -> bool:
        """Whether a mesh's program can be priced and solved once more."""
        ready = self.clock() + _REFINING * self.trials.longest_s
        ready += solving_s(self.programs.priced[mesh])
        return self._has_time(_REFINING) and ready < ends

    def _note_better(
        self, better: Sequence[tuple[Proposal, Priced, Future[Optimum]]]
    ) -> None:
        """What came of solving once more by what a simulation had shown of a plan."""
        programs = self.programs
        for own, priced, job in better:
            optimum = job.result()
            if priced.pricer.seconds(own.choices) <= optimum.seconds:
                # It has been simulated, and others that are level say nothing new.
                optimum = replace(optimum, choices=own.choices)
            programs.note(own.mesh, optimum)
            if not self._has_time(_LAST):
                self._simulate_all([programs.own[own.mesh]])
                break

    def _has_time(self, simulations: float) -> bool:
        """Whether there is time for so many, and for the plan that is returned."""
        return self._left_s(simulations) > 0

    def _left_s(self, simulations: float) -> float:
        """Seconds beyond those that so many simulations and the plan take."""
        needed = (simulations + _FOR_PLAN) * self.trials.longest_s
        return self.until - self.clock() - needed

    # -- by simulation ----------------------------------------------------------------

    def _simulate_all(self, proposals: Sequence[Proposal]) -> None:
        """What promises most comes first; what cannot be the best any more is left.

        What only lies along more axes than what was simulated comes last.
        """
        turns = in_turns(proposals, self.limit, self.value_of)
        for proposal in sorted(turns, key=self._is_flat):
            best = self.trials.best()
            if best is not None and not self._has_time(1):
                break
            if self._is_in_vain(proposal):
                continue
            tried = [(c.name, c.mesh, c.tactics) for c in self.candidates]
            tactics = (*self.space.given, *proposal.tactics)
            if (proposal.name, proposal.mesh, tactics) in tried:
                continue
            is_hopeless = best is not None and self._is_hopeless(proposal, best)
            if is_hopeless and proposal.name in {name for name, _, _ in tried}:
                continue
            self._simulate_one(proposal)

    def _unread(self) -> Iterator[Mesh]:
        """Meshes whose experts have not been looked at, while there is time for some."""
        for mesh in self.programs.by_promise():
            is_priced = mesh in self.programs.priced
            if is_priced and not self.experts.choices_on(mesh):
                if not self._has_time(_READING):
                    return
                yield mesh

    def _look_again(self, with_experts: bool) -> None:
        """Meshes that there seemed to be no time for at first, while some is left."""
        programs = self.programs
        while programs.unseen and self._has_time(_READING):
            seen = set(programs.own)
            ends = self.clock() + self._left_s(_LAST)
            programs.look(ends, ends, lambda: None)
            found = [own for mesh, own in programs.own.items() if mesh not in seen]
            if not found:
                return
            if with_experts:
                for own in list(found):
                    found += self.experts.on(own.mesh, programs.priced[own.mesh])
            self._simulate_all(found)

    def _is_flat(self, proposal: Proposal) -> bool:
        """Whether a plan is the one found on the mesh of one axis, simulated there.

        Its collectives go along other lines here; steps of the zoo took up to 3 % less.
        """
        if proposal.choices != self.programs.flat.get(proposal.mesh):
            return False
        first = self.meshes[0]
        return any((c.name, c.mesh) == (FOUND, first) for c in self.candidates)

    def _is_in_vain(self, proposal: Proposal) -> bool:
        """Whether nobody waits for a plan, large as it is by the model."""
        is_late = bool(self._simulated) and self.clock() >= self.until
        is_changed = self.before is not None
        return (is_late or is_changed) and proposal.bytes > _TOO_LARGE * self.limit

    def _is_hopeless(self, proposal: Proposal, best: Candidate) -> bool:
        """Whether a plan is far from the best, were it not the model that is."""
        said = [self.value_of(p.candidate) for p in self._simulated]
        least = max(self.value_of(best), min(said, default=0.0))
        return self.value_of(proposal.candidate) > HOPELESS * least

    def _simulate_one(self, proposal: Proposal) -> None:
        """One plan; where ours takes more memory than its program said, with less."""
        self._simulated.append(proposal)
        found = self.trials.simulate(proposal.name, proposal.mesh, proposal.tactics)
        if proposal.name != FOUND or proposal.bytes > self.limit:
            return
        programs, num_bytes = self.programs, proposal.bytes
        starts = [proposal.choices]
        for _ in range(_RETRIES):
            left = (
                self._left_s(1) if self.trials.has_fitting else self._left_s(-_FOR_PLAN)
            )
            if found.why_not or found.fits(self.limit) or left <= 0:
                return
            if programs.is_solving:  # the solver is not to be had, and a plan fits
                return
            limit = 0.98 * num_bytes * self.limit / found.peak_memory_bytes
            seconds = max(0.25 * left, SHORTEST_S)
            priced = programs.priced[proposal.mesh]
            job = programs.ask(priced, seconds, FIRST_TURNS, starts, limit=limit)
            optimum = job.result()
            num_bytes, starts = optimum.bytes, [optimum.choices]
            less = programs.proposal(proposal.mesh, replace(optimum, bound=0.0))
            self._simulated.append(less)
            before, found = found, self.trials.simulate(FOUND, less.mesh, less.tactics)
            if found.peak_memory_bytes >= before.peak_memory_bytes:
                return

    def _spell(self) -> None:
        """The best of our own as ordinary tactics; they may be the better for it."""
        best = self.trials.best()
        if best is None or best.name != FOUND or not self._has_time(_FOR_SPELLING):
            return
        if best.tactics[:-1] != self.space.given:  # it is of another search's program
            return
        self.on_progress(f"spelling {best.name} on {shape_text(best.mesh)}")
        tried = partial(self.trials.simulate, SPELLED, best.mesh)
        ends, count = self.clock() + self._left_s(1), len(self.candidates)
        spelled = spell(self.space, best, tried, self.trials.order, self.clock, ends)
        if spelled is None or spelled.step_time_s <= _MOST_SPELLED * best.step_time_s:
            self.spelled = spelled
        # What was tried on the way says nothing to anybody.
        told = () if self.spelled is None else self.spelled.tactics
        self.candidates[count:] = [
            c for c in self.candidates[count:] if c.tactics == told
        ]
