"""From a step and a machine to the best plan that was found."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from meshwright.autoplan.meshes import experts_of, shape_text
from meshwright.autoplan.optimum import Optimum
from meshwright.autoplan.space import Priced, Space
from meshwright.autoplan.spelling import spell
from meshwright.errors import MeshwrightError, PlanError
from meshwright.lower import Gather
from meshwright.machine import Mesh
from meshwright.plan.candidates import Candidate, Search, Spelling
from meshwright.plan.decide import decide
from meshwright.plan.estimate import estimate
from meshwright.tactics import Tactic

FOUND, SPELLED = "auto", "auto, spelled"
_SIMULATED = 4
"""Meshes whose optimum is simulated: those that the integer program likes best."""
_RETRIES = 3
"""Times that the limit of memory is tightened where the simulation needs more."""

_SHORTEST_S, _LONGEST_S = 2.5, 5.0
"""Seconds for an integer program, whatever the budget."""

OnProgress = Callable[[str], None]


@dataclass
class Searcher:
    """One search under way.

    limit: bytes that a device gives. until: when the clock says this, the best so far is
    the answer.
    """

    space: Space
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

    def run(self, with_experts: bool) -> None:
        """Look at all meshes, then at the experts' strategies, while there is time."""
        try:
            self._search()
            self._spell()
            if with_experts:
                self._try_experts()
        except KeyboardInterrupt:
            if not self.candidates:
                raise

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

    # -- our own ----------------------------------------------------------------------

    def _search(self) -> None:
        """Solve the integer program on each mesh, then simulate the best of them."""
        solved: list[tuple[float, int, Priced, Optimum]] = []
        for number, mesh in enumerate(self.meshes):
            if solved and self.clock() >= self.until:
                break
            self.on_progress(f"solving {shape_text(mesh)}")
            priced = self.space.price(mesh)
            left = len(self.meshes) - number
            share = min(_LONGEST_S, 0.6 * (self.until - self.clock()) / left)
            ends = self.clock() + max(share, _SHORTEST_S)
            optimum = priced.best(self.limit, self.clock, ends)
            if optimum is None:
                continue
            self.bounds[shape_text(mesh)] = optimum.seconds, optimum.bound
            solved.append((optimum.seconds, number, priced, optimum))
            name = f"{FOUND} on {shape_text(mesh)}"
            self.on_progress(f"{name}: {optimum.seconds * 1e3:.1f} ms by the program")
        solved.sort(key=lambda entry: entry[:2])
        for place, (_, number, priced, optimum) in enumerate(solved[:_SIMULATED]):
            if place and self.clock() >= self.until:
                break
            self._simulate_found(self.meshes[number], priced, optimum)

    def _simulate_found(self, mesh: Mesh, priced: Priced, optimum: Optimum) -> None:
        """Simulate a mesh's optimum; where it does not fit, ask for less memory."""
        for _ in range(_RETRIES):
            found = self.simulate(FOUND, mesh, (priced.tactic(optimum, FOUND),))
            if found.why_not or found.fits(self.limit):
                return
            if self.clock() >= self.until:
                return
            limit = 0.98 * optimum.bytes * self.limit / found.peak_memory_bytes
            share = min(_LONGEST_S, 0.25 * (self.until - self.clock()))
            ends = self.clock() + max(share, _SHORTEST_S)
            less = priced.best(limit, self.clock, ends)
            if less is None:
                return
            optimum = less

    def _spell(self) -> None:
        """The best of our own as ordinary tactics; they may be the better for it."""
        fitting = [c for c in self.candidates if c.fits(self.limit)]
        if fitting:
            best = min(fitting, key=self.value_of)
            self.on_progress(f"spelling {best.name} on {shape_text(best.mesh)}")
            left = self.until - self.clock()
            ends = self.clock() + min(_LONGEST_S, max(left, _SHORTEST_S))
            tried = partial(self.simulate, SPELLED, best.mesh)
            self.spelled = spell(self.space, best, tried, self.clock, ends)

    # -- experts ----------------------------------------------------------------------

    def _try_experts(self) -> None:
        """Simulate what people would do, on the meshes that suit it, best first."""
        for name, mesh, tactics in self._experts():
            if self.clock() >= self.until and len(self.candidates) > 2:
                return
            self.simulate(name, mesh, tactics)

    def _experts(self) -> Iterator[tuple[str, Mesh, tuple[Tactic, ...]]]:
        """In rounds: of each strategy one mesh, then of each the next."""
        known = [(mesh, experts_of(mesh)) for mesh in self.by_promise()]
        names = dict.fromkeys(name for _, table in known for name in table)
        queues = {
            name: [(mesh, table[name]) for mesh, table in known if name in table]
            for name in names
        }
        while any(queues.values()):
            for name, queue in queues.items():
                if queue:
                    yield name, *queue.pop(0)

    def by_promise(self) -> list[Mesh]:
        """The meshes, those first that the integer program likes best."""

        def seconds(mesh: Mesh) -> float:
            return self.bounds.get(shape_text(mesh), (float("inf"), 0.0))[0]

        return sorted(self.meshes, key=seconds)

    # -- one plan ---------------------------------------------------------------------

    def simulate(self, name: str, mesh: Mesh, tactics: Sequence[Tactic]) -> Candidate:
        """Decide, lower and simulate one plan, and note it."""
        try:
            decided = decide(self.space.captured, mesh, tactics, self.gather)
            found = estimate(decided, self.space.machine, donate_state=True)
            candidate = Candidate(
                name, mesh, tuple(tactics), found.step_time_s, found.peak_memory_bytes
            )
        except MeshwrightError as error:
            candidate = Candidate(name, mesh, tuple(tactics), why_not=str(error))
        self.candidates.append(candidate)
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
