"""From a step and a machine to the best plan that was found."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial

from meshwright.autoplan.beside import Beside, Question
from meshwright.autoplan.frontier import frontier
from meshwright.autoplan.known import Experts, spread
from meshwright.autoplan.meshes import shape_text
from meshwright.autoplan.model import Model
from meshwright.autoplan.optimum import GOOD_ENOUGH, Optimum
from meshwright.autoplan.proposal import (
    FOUND,
    Choices,
    OnProgress,
    Proposal,
    ValueOf,
    counts_memory,
    in_turns,
)
from meshwright.autoplan.reading import carry_over
from meshwright.autoplan.roles import EXPOSED
from meshwright.autoplan.space import Priced, Space, solving_s
from meshwright.autoplan.spelling import spell
from meshwright.autoplan.trials import Trials
from meshwright.errors import MeshwrightError, PlanError
from meshwright.lower import Gather
from meshwright.machine import Mesh
from meshwright.plan.candidates import Candidate, Search, Spelling

SPELLED = "auto, spelled"

_FOR_LOOKS, _FOR_PROGRAMS, _FOR_LESS = 0.4, 0.65, 0.8
"""Shares of the time until each mesh has a first solution, until those that promise most
have a better one, and, where memory counts, others that take less of it; the rest is for
simulations."""

_FOR_NEXT = 0.5
"""Of the time for plans that take less memory what the next mesh gets, and of its time
what the next limit gets."""

_MORE_AXES = {2: 1.5, 3: 7.0}
"""By number of axes, times as long as with one less the pricing of a mesh takes at least;
as measured for the step from one to two, that is 1.5 to 5."""

_SHORTEST_S = 2.0
"""Seconds that an integer program gets at least."""

_FIRST_TURNS, _TURNS, _LONG_TURNS = 60, 200, 2_000
"""Of the solver on an integer program: at first, where it promises most, and beside the
simulations."""

_REFINED = 3
"""Meshes on which experts' strategies are read and the program is solved again."""

_REFINING = 3
"""Simulations' worth of time that it takes at least to price and solve once more."""

_LAST = 2
"""Simulations' worth of time that is left when the first refined plan has its turn."""

_FOR_SPELLING = 3
"""Simulations' worth of time that it takes at least to find tactics for a plan."""

_MOST_SPELLED = 1.2
"""Times as long as the plan that its tactics may take to be told."""

_RETRIES = 3
"""Times that the limit of memory is tightened where the simulation needs more."""

_HOPELESS = 1.2
"""A plan that takes so many times as long as the best is not looked at any more."""


@dataclass
class Searcher:
    """One search under way.

    limit: bytes that a device gives. until: when the clock says this, the best so far is
    the answer. before: what was found for a like program. priced, own: by mesh the model,
    and the best of it that was found; unlimited: the best, if memory were no matter;
    smaller: what takes less memory, where that counts. num_before: meshes that searches
    before this one have looked at.
    """

    space: Space
    beside: Beside
    meshes: Sequence[Mesh]
    limit: float
    until: float
    value_of: ValueOf
    clock: Callable[[], float] = time.monotonic
    on_progress: OnProgress = lambda text: None
    gather: Gather = Gather.SHARED
    reserved: Callable[[Searcher], float] = lambda searcher: 0.0
    candidates: list[Candidate] = field(default_factory=list)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    spelled: Spelling | None = None
    before: tuple[Model, Choices] | None = None
    priced: dict[Mesh, Priced] = field(default_factory=dict[Mesh, Priced])
    own: dict[Mesh, Proposal] = field(default_factory=dict[Mesh, Proposal])
    unlimited: dict[Mesh, Choices | None] = field(
        default_factory=dict[Mesh, Choices | None]
    )
    smaller: list[Proposal] = field(default_factory=list[Proposal])
    num_before: int = 0
    experts: Experts = field(init=False)
    trials: Trials = field(init=False)
    _simulated: list[Proposal] = field(default_factory=list[Proposal])
    _solved: dict[Mesh, Priced] = field(default_factory=dict[Mesh, Priced])
    _longer: tuple[Mesh, Future[Optimum]] | None = None
    is_interrupted: bool = False
    _pricing_s: dict[int, float] = field(default_factory=dict[int, float])  # by axes

    def __post_init__(self) -> None:
        self.experts = Experts(self.space, self.candidates)
        self.trials = Trials(
            self.space, self.limit, self.value_of, self.clock, self.on_progress,
            self.gather, self.candidates,
        )  # fmt: skip

    def run(self, with_experts: bool) -> None:
        """Look at all meshes, and simulate what promises most, while there is time."""
        try:
            proposals = self._propose(with_experts)
            self._solve_longer()
            self._simulate_all(proposals)
            self._spell()
            self._note_bound()
        except KeyboardInterrupt:
            self.is_interrupted = True
            if not self.trials.has_fitting:
                if not self.own:
                    raise
                best = min(self.own.values(), key=self._rank)
                self.trials.simulate(best.name, best.mesh, best.tactics)

    def found(self, started: float) -> Search:
        """What came out, the best first; `PlanError` where nothing fits."""
        best = self.trials.best()
        if best is None:
            raise PlanError(self.trials.nothing_fits())
        rest = [c for c in self.candidates if c is not best]
        model_s, bound_s = self.bounds.get(shape_text(best.mesh), (0.0, 0.0))
        model_s = self._by_model(best) or model_s
        return Search(
            (best, *sorted(rest, key=self.trials.order)),
            self.limit,
            model_s,
            bound_s,
            self.clock() - started,
            max(len(self.own), self.num_before),
            self.spelled,
        )

    def _by_model(self, plan: Candidate) -> float | None:
        """Seconds of a simulated plan by the prices that its mesh's bound is of.

        None for a spelled one, which the model has no choices for.
        """
        own = plan.tactics[len(self.space.given) :]
        for proposal in self._simulated:
            is_it = (proposal.mesh, proposal.tactics) == (plan.mesh, own)
            if is_it and plan.mesh in self._solved:
                return self._solved[plan.mesh].pricer.roughly(proposal.choices)
        return None

    # -- by the model -----------------------------------------------------------------

    def _propose(self, with_experts: bool) -> list[Proposal]:
        """What integer programs and experts make of the meshes that promise most."""
        started = self.clock()
        left = self.until - started
        self._look(started + _FOR_LOOKS * left, with_experts)
        if all(p.bytes > self.limit for p in self.own.values()):
            return [min(self.own.values(), key=lambda p: p.bytes)]
        self.until -= self.reserved(self)
        experts = self._refine(started + _FOR_PROGRAMS * left, with_experts)
        self._find_smaller(started + _FOR_LESS * left)
        return [*self.own.values(), *self.smaller, *experts]

    def _refine(self, ends: float, with_experts: bool) -> list[Proposal]:
        """Simulate the best plans, and solve once more; what experts do there."""
        experts: list[Proposal] = []
        better: list[tuple[Mesh, Future[Optimum]]] = []
        for mesh in self.by_promise()[:_REFINED]:
            if mesh not in self.own or (better and self.clock() >= ends):
                continue
            own = self.own[mesh]
            if better and own.seconds > self._worthless():
                continue
            self._simulate_one(own)
            known = self.experts.on(mesh, self.priced[mesh]) if with_experts else []
            experts += known
            if not self._has_time(_REFINING):
                break
            priced = self._price_again(mesh)
            if self.clock() + solving_s(priced) >= ends:
                continue
            starts = [own.choices, *(expert.choices for expert in known)]
            seconds = max(ends - self.clock(), _SHORTEST_S)
            better.append((mesh, self._ask(priced, seconds, _TURNS, starts)))
        if experts and self._has_time(1):  # while it is being solved
            self._simulate_one(min(experts, key=self._rank))
        for mesh, job in better:
            self._note(mesh, job.result())
            if not self._has_time(_LAST):
                self._simulate_one(self.own[mesh])
                break
        return experts

    def _solve_longer(self) -> None:
        """The best mesh's program once more, for all the time that simulations take.

        Only the bound is taken of it: how far it comes is a matter of time.
        """
        best = self.trials.best()
        if best is None or best.mesh not in self.own:
            return
        own, (seconds, bound) = self.own[best.mesh], self.bounds[shape_text(best.mesh)]
        left = self.until - self.clock() - self.trials.longest_s
        if bound < (1 - GOOD_ENOUGH) * seconds and left >= _SHORTEST_S:
            priced = self._solved[best.mesh]
            job = self._ask(priced, left, _LONG_TURNS, [own.choices])
            self._longer = best.mesh, job

    def _note_bound(self) -> None:
        if self._longer is None:
            return
        mesh, job = self._longer
        seconds, bound = self.bounds[shape_text(mesh)]
        try:
            bound = max(bound, job.result().bound)
        except MeshwrightError:  # what has been found stands without it
            return
        self.bounds[shape_text(mesh)] = seconds, bound

    def _has_time(self, simulations: float) -> bool:
        return self.clock() + simulations * self.trials.longest_s < self.until

    def _find_smaller(self, ends: float) -> None:
        """Where memory counts, plans that take less of it, on the meshes in turn."""
        for mesh in self.by_promise():
            if mesh not in self.own or not counts_memory(self.value_of, self.own[mesh]):
                break
            left = ends - self.clock()
            self.smaller += self._smaller_on(mesh, self.clock() + _FOR_NEXT * left)

    def _smaller_on(self, mesh: Mesh, ends: float) -> Iterator[Proposal]:
        own = self.own[mesh]
        experts = self.experts.choices_on(mesh)

        def ask(limit: float, known: Optimum) -> Optimum:
            gib = limit / 2**30
            self.on_progress(f"less than {gib:.3g} GiB on {shape_text(mesh)}")
            seconds = max(_FOR_NEXT * (ends - self.clock()), _SHORTEST_S)
            starts = [known.choices, *experts]
            job = self._ask(
                self.priced[mesh], seconds, _FIRST_TURNS, starts, limit=limit
            )
            return job.result()

        def value(seconds: float, num_bytes: float) -> float:
            return self.value_of(
                replace(own, seconds=seconds, bytes=num_bytes).candidate
            )

        first = Optimum(own.choices, own.seconds, own.bytes, 0.0)
        for optimum in frontier(first, ask, value, lambda: self.clock() >= ends):
            yield self._proposal(mesh, optimum)

    def _proposal(self, mesh: Mesh, optimum: Optimum) -> Proposal:
        return Proposal(
            FOUND, mesh, (self.priced[mesh].tactic(optimum, FOUND),),
            optimum.seconds, optimum.bytes, optimum.choices,
        )  # fmt: skip

    def _rank(self, proposal: Proposal) -> tuple[bool, float, float]:
        return proposal.rank(self.limit, self.value_of)

    def _price_again(self, mesh: Mesh) -> Priced:
        """With the shares of collectives that a step waited for.

        Where they are more than was thought that is so for the plan, and those that are
        less are not believed yet: with more collectives there is more to wait for. Where
        all are less it is tried what that leads to, half way.
        """
        shares = self.trials.exposed.get(mesh, {})
        is_more = any(share > EXPOSED[role] for role, share in shares.items())
        exposed = {
            role: max(share, EXPOSED[role])
            if is_more
            else math.sqrt(share * EXPOSED[role])
            for role, share in shares.items()
        }
        priced = self.priced[mesh] = self.space.price(mesh, exposed=exposed)
        return priced

    def _look(self, ends: float, with_experts: bool) -> None:
        """A first solution for each mesh, while the next one is being priced.

        Of a mesh with one axis it is a start for all others.
        """
        jobs: list[tuple[Mesh, Future[Optimum]]] = []
        for number, mesh in enumerate(self.meshes):
            if number > 0 and self.clock() + self._least_s(mesh) >= ends:
                continue
            began = self.clock()
            self.on_progress(f"pricing {shape_text(mesh)}")
            priced = self.priced[mesh] = self.space.price(mesh)
            self._pricing_s[len(mesh.axes)] = self.clock() - began
            if number > 0 and self.clock() + solving_s(priced) >= ends:
                continue
            if number > 0:  # the one before may take long, but for the first
                self._collect(jobs, max(1, len(jobs) - 1))
            share = (ends - self.clock()) / (len(self.meshes) - number)
            starts = self._starts(mesh, priced, with_experts)
            seconds = max(share, _SHORTEST_S)
            job = self._ask(priced, seconds, _FIRST_TURNS, starts, self._worthless())
            jobs.append((mesh, job))
        self._collect(jobs, len(jobs))

    def _least_s(self, mesh: Mesh) -> float:
        """Seconds that the pricing of a mesh takes at least, by those of fewer axes."""
        count = len(mesh.axes)
        fewer = self._pricing_s.get(count - 1, 0.0)
        return self._pricing_s.get(count, _MORE_AXES.get(count, 1.0) * fewer)

    def _worthless(self) -> float:
        """Seconds of a step for which no plan is wanted; slow ones may be small."""
        fitting = [p for p in self.own.values() if p.bytes <= self.limit]
        if any(counts_memory(self.value_of, p) for p in fitting):
            return math.inf
        return _HOPELESS * min((p.seconds for p in fitting), default=math.inf)

    def _starts(self, mesh: Mesh, priced: Priced, with_experts: bool) -> list[Choices]:
        """What experts do, what was found on the first mesh, and for a like program."""
        known = self.experts.on(mesh, priced) if with_experts else []
        starts = [expert.choices for expert in known]
        first = self.meshes[0]
        if len(first.axes) == 1 and first in self.own:
            flat = spread(self.own[first].choices, self.priced[first], priced)
            starts += [] if flat is None else [flat]
        if self.before is not None:
            starts.append(carry_over(*self.before, priced.model))
        return starts

    def _collect(self, jobs: Sequence[tuple[Mesh, Future[Optimum]]], most: int) -> None:
        """Note the first so many answers, each once."""
        for mesh, job in jobs[:most]:
            if mesh not in self.own:
                self._note(mesh, job.result())

    def _ask(
        self, priced: Priced, seconds: float, turns: int, starts: Sequence[Choices],
        worthless: float = math.inf, limit: float | None = None,
    ) -> Future[Optimum]:  # fmt: skip
        limit = self.limit if limit is None else limit
        question = Question(
            priced.pricer, limit, seconds, turns, tuple(starts), worthless
        )
        return self.beside.ask(question)

    def _note(self, mesh: Mesh, optimum: Optimum) -> None:
        shape = shape_text(mesh)
        self.bounds[shape] = optimum.seconds, optimum.bound
        self._solved[mesh] = self.priced[mesh]
        self.unlimited[mesh] = optimum.unlimited
        self.own[mesh] = self._proposal(mesh, optimum)
        self.on_progress(
            f"{FOUND} on {shape}: {optimum.seconds * 1e3:.1f} ms by the program"
        )

    # -- by simulation ----------------------------------------------------------------

    def _simulate_all(self, proposals: Sequence[Proposal]) -> None:
        """What promises most comes first; what cannot be the best any more is left."""
        for proposal in in_turns(proposals, self.limit, self.value_of):
            best = self.trials.best()
            if best is not None and not self._has_time(1):
                break
            tried = [(c.name, c.mesh, c.tactics) for c in self.candidates]
            tactics = (*self.space.given, *proposal.tactics)
            if (proposal.name, proposal.mesh, tactics) in tried:
                continue
            is_hopeless = best is not None and self._is_hopeless(proposal, best)
            if is_hopeless and proposal.name in {name for name, _, _ in tried}:
                continue
            self._simulate_one(proposal)

    def _is_hopeless(self, proposal: Proposal, best: Candidate) -> bool:
        """Whether a plan is far from the best, were it not the model that is."""
        said = [self.value_of(p.candidate) for p in self._simulated]
        least = max(self.value_of(best), min(said, default=0.0))
        return self.value_of(proposal.candidate) > _HOPELESS * least

    def _simulate_one(self, proposal: Proposal) -> None:
        """One plan; where ours takes more memory than its program said, with less."""
        self._simulated.append(proposal)
        found = self.trials.simulate(proposal.name, proposal.mesh, proposal.tactics)
        if proposal.name != FOUND or proposal.bytes > self.limit:
            return
        priced, num_bytes = self.priced[proposal.mesh], proposal.bytes
        starts = [proposal.choices]
        for _ in range(_RETRIES):
            if found.why_not or found.fits(self.limit) or self.clock() >= self.until:
                return
            if self._longer is not None:  # the solver is not to be had, and a plan fits
                return
            limit = 0.98 * num_bytes * self.limit / found.peak_memory_bytes
            seconds = max(0.25 * (self.until - self.clock()), _SHORTEST_S)
            job = self._ask(priced, seconds, _FIRST_TURNS, starts, limit=limit)
            optimum = job.result()
            num_bytes, starts = optimum.bytes, [optimum.choices]
            less = self._proposal(proposal.mesh, optimum)
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
        ends, count = self.until - self.trials.longest_s, len(self.candidates)
        spelled = spell(self.space, best, tried, self.trials.order, self.clock, ends)
        if spelled is None or spelled.step_time_s <= _MOST_SPELLED * best.step_time_s:
            self.spelled = spelled
        # What was tried on the way says nothing to anybody.
        told = () if self.spelled is None else self.spelled.tactics
        self.candidates[count:] = [
            c for c in self.candidates[count:] if c.tactics == told
        ]

    def by_promise(self) -> list[Mesh]:
        """The meshes, those first that the integer program likes best."""
        known = sorted((m for m in self.meshes if m in self.own), key=self._promise)
        return [*known, *(m for m in self.meshes if m not in self.own)]

    def _promise(self, mesh: Mesh) -> tuple[bool, float, float]:
        return self._rank(self.own[mesh])
