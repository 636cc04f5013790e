"""From a step and a machine to the best plan that was found."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial

from meshwright.autoplan.beside import Beside, Question
from meshwright.autoplan.meshes import experts_of, shape_text
from meshwright.autoplan.model import Model
from meshwright.autoplan.optimum import Optimum
from meshwright.autoplan.proposal import FOUND, Choices, Proposal, in_turns
from meshwright.autoplan.reading import carry_over, read_choices, spread_choices
from meshwright.autoplan.roles import Role, exposed_by_role
from meshwright.autoplan.space import Priced, Space
from meshwright.autoplan.spelling import spell
from meshwright.errors import MeshwrightError, PlanError
from meshwright.lower import Gather
from meshwright.machine import Mesh
from meshwright.plan.candidates import Candidate, Search, Spelling
from meshwright.plan.decide import decide, start_workspace
from meshwright.plan.estimate import estimate
from meshwright.simulate.rules import RULES
from meshwright.tactics import Tactic

SPELLED = "auto, spelled"

_FOR_LOOKS, _FOR_PROGRAMS = 0.35, 0.65
"""Shares of the time until each mesh has a first solution, and until those that promise
most have a better one; the rest is for simulations."""

_SHORTEST_S = 1.0
"""Seconds that an integer program gets at least."""

_FIRST_TURNS, _TURNS = 60, 200
"""Of the solver on an integer program, at first and where it promises most."""

_REFINED = 3
"""Meshes on which experts' strategies are read and the program is solved again."""

_RETRIES = 3
"""Times that the limit of memory is tightened where the simulation needs more."""

_HOPELESS = 1.2
"""A plan that takes so many times as long as the best is not looked at any more."""

type Expert = tuple[str, tuple[Tactic, ...], Choices]

OnProgress = Callable[[str], None]


@dataclass
class Searcher:
    """One search under way.

    limit: bytes that a device gives. until: when the clock says this, the best so far is
    the answer. before: what was found for a like program. priced, own: by mesh the model,
    and the best of it that was found.
    """

    space: Space
    beside: Beside
    meshes: Sequence[Mesh]
    limit: float
    until: float
    value_of: Callable[[Candidate], float]
    clock: Callable[[], float] = time.monotonic
    on_progress: OnProgress = lambda text: None
    gather: Gather = Gather.SHARED
    candidates: list[Candidate] = field(default_factory=list)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    spelled: Spelling | None = None
    before: tuple[Model, Choices] | None = None
    priced: dict[Mesh, Priced] = field(default_factory=dict[Mesh, Priced])
    own: dict[Mesh, Proposal] = field(default_factory=dict[Mesh, Proposal])
    _experts: dict[Mesh, list[Expert]] = field(default_factory=dict[Mesh, list[Expert]])
    _exposed: dict[Mesh, Mapping[Role, float]] = field(
        default_factory=dict[Mesh, Mapping[Role, float]]
    )
    is_interrupted: bool = False
    _longest: float = 0.0  # seconds that a simulation took

    def run(self, with_experts: bool) -> None:
        """Look at all meshes, and simulate what promises most, while there is time."""
        try:
            self._simulate_all(self._propose(with_experts))
            self._spell()
        except KeyboardInterrupt:
            self.is_interrupted = True
            if not self.has_fitting:
                if not self.own:
                    raise
                best = min(self.own.values(), key=lambda p: p.rank(self.limit))
                self.simulate(best.name, best.mesh, best.tactics)

    def found(self, started: float) -> Search:
        """What came out, the best first; `PlanError` where nothing fits."""
        fitting = [c for c in self.candidates if c.fits(self.limit)]
        if not fitting:
            raise PlanError(self._nothing_fits())
        best = min(fitting, key=lambda c: (self.value_of(c), c.name == FOUND))
        rest = [c for c in self.candidates if c is not best]
        model_s, bound_s = self.bounds.get(shape_text(best.mesh), (0.0, 0.0))
        return Search(
            (best, *sorted(rest, key=self.value_of)),
            self.limit,
            model_s,
            bound_s,
            self.clock() - started,
            len(self.meshes),
            self.spelled,
        )

    # -- by the model -----------------------------------------------------------------

    def _propose(self, with_experts: bool) -> list[Proposal]:
        """What integer programs and experts make of the meshes that promise most."""
        started = self.clock()
        left = self.until - started
        self._look(started + _FOR_LOOKS * left, with_experts)
        if all(p.bytes > self.limit for p in self.own.values()):
            return [min(self.own.values(), key=lambda p: p.bytes)]
        ends = started + _FOR_PROGRAMS * left
        experts: list[Proposal] = []
        better: list[tuple[Mesh, Future[Optimum]]] = []
        for mesh in self.by_promise()[:_REFINED]:
            if mesh not in self.own or (better and self.clock() >= ends):
                continue
            own = self.own[mesh]
            priced = self._price_again(own)
            known = self._experts_on(mesh) if with_experts else []
            experts += known
            starts = [own.choices, *(expert.choices for expert in known)]
            seconds = max(ends - self.clock(), _SHORTEST_S)
            better.append((mesh, self._ask(priced, seconds, _TURNS, starts)))
        if experts:  # simulated while programs are being solved
            self._simulate_one(min(experts, key=lambda p: p.rank(self.limit)))
        for mesh, job in better:
            self._note(mesh, job.result())
        return [*self.own.values(), *experts]

    def _price_again(self, own: Proposal) -> Priced:
        """With the shares of collectives that a step waits for, as simulated."""
        self._simulate_one(own)
        exposed = self._exposed.get(own.mesh)
        priced = self.priced[own.mesh] = self.space.price(own.mesh, exposed=exposed)
        return priced

    def _look(self, ends: float, with_experts: bool) -> None:
        """A first solution for each mesh, while the next one is being priced.

        Of a mesh with one axis it is a start for all others.
        """
        jobs: list[tuple[Mesh, Future[Optimum]]] = []
        for number, mesh in enumerate(self.meshes):
            if number > 0 and self.clock() >= ends:
                break
            self.on_progress(f"pricing {shape_text(mesh)}")
            priced = self.priced[mesh] = self.space.price(mesh)
            if number > 0:  # the one before may take long, but for the first
                self._collect(jobs, max(1, number - 1))
            share = (ends - self.clock()) / (len(self.meshes) - number)
            starts = self._starts(mesh, priced) if number or with_experts else []
            if self.before is not None:
                starts.append(carry_over(*self.before, priced.model))
            fitting = (p.seconds for p in self.own.values() if p.bytes <= self.limit)
            worthless = _HOPELESS * min(fitting, default=math.inf)
            seconds = max(share, _SHORTEST_S)
            job = self._ask(priced, seconds, _FIRST_TURNS, starts, worthless)
            jobs.append((mesh, job))
        self._collect(jobs, len(jobs))

    def _starts(self, mesh: Mesh, priced: Priced) -> list[Choices]:
        """On the first mesh what experts do, on others what was found there."""
        first = self.meshes[0]
        if mesh is first:
            return [expert.choices for expert in self._experts_on(mesh)]
        flat = self.own.get(first) if len(first.axes) == 1 else None
        return [] if flat is None else [self._spread(flat.choices, priced)]

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

    def _spread(self, flat: Choices, priced: Priced) -> Choices:
        """The choices for the first mesh, with all axes of another in place of its one."""
        source = self.priced[self.meshes[0]]
        units = [u for run in source.work.units.values() for u in run]
        all_units = [u for run in priced.work.units.values() for u in run]
        return spread_choices(source.model, flat, priced.model, units, all_units)

    def _note(self, mesh: Mesh, optimum: Optimum) -> None:
        shape = shape_text(mesh)
        self.bounds[shape] = optimum.seconds, optimum.bound
        self.own[mesh] = Proposal(
            FOUND, mesh, (self.priced[mesh].tactic(optimum, FOUND),),
            optimum.seconds, optimum.bytes, optimum.choices,
        )  # fmt: skip
        self.on_progress(
            f"{FOUND} on {shape}: {optimum.seconds * 1e3:.1f} ms by the program"
        )

    def _experts_on(self, mesh: Mesh) -> list[Proposal]:
        """Experts' plans by the model; what cannot be is noted as a candidate."""
        priced = self.priced[mesh]
        known = self._experts.get(mesh)
        if known is None:
            known = self._experts[mesh] = list(self._read_experts(mesh, priced.model))
        return [
            Proposal(
                name,
                mesh,
                tactics,
                priced.pricer.roughly(choices),
                float(priced.pricer.curve(choices).max()),
                choices,
            )
            for name, tactics, choices in known
        ]

    def _read_experts(self, mesh: Mesh, model: Model) -> Iterator[Expert]:
        for name, tactics in experts_of(mesh).items():
            work = start_workspace(self.space.captured, mesh, self.space.graph)
            try:
                for tactic in tactics:
                    tactic.apply(work)
            except MeshwrightError as error:
                told = Candidate(name, mesh, tactics, why_not=str(error))
                self.candidates.append(told)
                continue
            yield name, tactics, read_choices(model, work.state)

    # -- by simulation ----------------------------------------------------------------

    def _simulate_all(self, proposals: Sequence[Proposal]) -> None:
        """What promises most comes first; what cannot be the best any more is left."""
        for proposal in in_turns(proposals, self.limit):
            best = self._best()
            if best is not None and self.clock() + self._longest >= self.until:
                break
            tried = {(c.name, c.tactics) for c in self.candidates}
            tactics = (*self.space.given, *proposal.tactics)
            if (proposal.name, tactics) in tried:
                continue
            is_hopeless = best is not None and (
                self.value_of(proposal.candidate) > _HOPELESS * self.value_of(best)
            )
            if is_hopeless and proposal.name in {name for name, _ in tried}:
                continue
            self._simulate_one(proposal)

    def _simulate_one(self, proposal: Proposal) -> None:
        """One plan; where ours takes more memory than its program said, with less."""
        found = self.simulate(proposal.name, proposal.mesh, proposal.tactics)
        if proposal.name != FOUND or proposal.bytes > self.limit:
            return
        priced, num_bytes = self.priced[proposal.mesh], proposal.bytes
        starts = [proposal.choices]
        for _ in range(_RETRIES):
            if found.why_not or found.fits(self.limit) or self.clock() >= self.until:
                return
            limit = 0.98 * num_bytes * self.limit / found.peak_memory_bytes
            seconds = max(0.25 * (self.until - self.clock()), _SHORTEST_S)
            job = self._ask(priced, seconds, _FIRST_TURNS, starts, limit=limit)
            optimum = job.result()
            num_bytes, starts = optimum.bytes, [optimum.choices]
            tactics = (priced.tactic(optimum, FOUND),)
            found = self.simulate(FOUND, proposal.mesh, tactics)

    @property
    def has_fitting(self) -> bool:
        """Whether anything that was simulated fits."""
        return self._best() is not None

    def smallest(self) -> tuple[Mesh, int] | None:
        """Mesh and bytes of our smallest plan that was simulated, with what is given."""
        given = self.space.given
        own = [
            c
            for c in self.candidates
            if c.name == FOUND and not c.why_not and c.tactics[: len(given)] == given
        ]
        least = min(own, key=lambda c: c.peak_memory_bytes, default=None)
        return least and (least.mesh, least.peak_memory_bytes)

    def _best(self) -> Candidate | None:
        fitting = (c for c in self.candidates if c.fits(self.limit))
        return min(fitting, key=self.value_of, default=None)

    def _spell(self) -> None:
        """The best of our own as ordinary tactics; they may be the better for it."""
        best = self._best()
        if best is None or best.name != FOUND or self.clock() >= self.until:
            return
        self.on_progress(f"spelling {best.name} on {shape_text(best.mesh)}")
        tried = partial(self.simulate, SPELLED, best.mesh)
        self.spelled = spell(self.space, best, tried, self.clock, self.until)

    def by_promise(self) -> list[Mesh]:
        """The meshes, those first that the integer program likes best."""

        def seconds(mesh: Mesh) -> float:
            return self.bounds.get(shape_text(mesh), (math.inf, 0.0))[0]

        return sorted(self.meshes, key=seconds)

    def simulate(self, name: str, mesh: Mesh, tactics: Sequence[Tactic]) -> Candidate:
        """Decide, lower and simulate one plan, what is given included, and note it."""
        tactics = (*self.space.given, *tactics)
        began = self.clock()
        try:
            decided = decide(self.space.original, mesh, tactics, self.gather)
            found = estimate(decided, self.space.machine, donate_state=True)
            candidate = Candidate(
                name, mesh, tuple(tactics), found.step_time_s, found.peak_memory_bytes
            )
        except MeshwrightError as error:
            candidate = Candidate(name, mesh, tuple(tactics), why_not=str(error))
        else:
            if name == FOUND:
                beside = RULES[self.space.machine.compiler].overlaps
                self._exposed[mesh] = exposed_by_role(
                    found.program, found.timeline, beside
                )
        self.candidates.append(candidate)
        self._longest = max(self._longest, self.clock() - began)
        if not candidate.why_not:
            gib = candidate.peak_memory_bytes / 2**30
            self.on_progress(
                f"{name} on {shape_text(mesh)}: "
                f"{candidate.step_time_s * 1e3:.1f} ms, {gib:.1f} GiB"
            )
        return candidate

    def _nothing_fits(self) -> str:
        """By how much the smallest plan is too large, and what would help."""
        run = [c for c in self.candidates if not c.why_not]
        if not run:
            return "no plan was found at all: nothing in this program can be cut so"
        least = min(run, key=lambda c: c.peak_memory_bytes)
        needed, limit = least.peak_memory_bytes / 2**30, self.limit / 2**30
        factor = least.peak_memory_bytes / self.limit
        return (
            f"nothing fits: the smallest plan found ({least.name} on "
            f"{shape_text(least.mesh)}) takes {needed:.1f} GiB a device of {limit:.1f}; "
            f"{factor:.1f} times the chips, as much less batch, recomputation "
            "(jax.checkpoint) of what the backward pass needs, or chips with more memory "
            "would do"
        )
