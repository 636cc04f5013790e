"""Plans that are simulated, and what is known of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from meshwright.errors import MeshwrightError
from meshwright.machine import Mesh
from meshwright.partitioner.decide import decide
from meshwright.partitioner.lower import Gather, Lowered
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.candidates.candidate import Candidate, visible
from meshwright.planner.candidates.meshes import shape_text
from meshwright.planner.candidates.proposal import FOUND, OnProgress, ValueOf
from meshwright.planner.prices.value_roles import Role, exposed_by_role
from meshwright.planner.solve.space import Space
from meshwright.predict.compilers.rules import RULES
from meshwright.predict.compilers.xla.workarounds import XLA_WORKAROUNDS
from meshwright.predict.estimate import estimate


@dataclass
class Trials:
    """Of one program on one machine.

    limit: bytes that a device gives. exposed: by mesh, of our last plan there, the shares
    of collectives that a step waited for. longest_s: that a simulation took. lowered: the
    best that fits so far, and what it came to.
    """

    space: Space
    limit: float
    value_of: ValueOf
    clock: Callable[[], float]
    on_progress: OnProgress
    gather: Gather
    candidates: list[Candidate]
    exposed: dict[Mesh, Mapping[Role, float]] = field(
        default_factory=dict[Mesh, Mapping[Role, float]]
    )
    longest_s: float = 0.0
    lowered: tuple[Candidate, Lowered] | None = None

    def simulate(self, name: str, mesh: Mesh, tactics: Sequence[Tactic]) -> Candidate:
        """Decide, lower and simulate one plan, what is given included, and note it."""
        tactics = (*self.space.given, *tactics)
        began = self.clock()
        try:
            original, graph = self.space.original.captured, self.space.graph
            decided = decide(
                original, mesh, tactics, self.gather, graph, XLA_WORKAROUNDS
            )
            found = estimate(decided, self.space.machine, donate_state=True)
            candidate = Candidate(
                name, mesh, tuple(tactics), found.step_time_s, found.peak_memory_bytes,
                breakdown=visible(found.breakdown),
            )  # fmt: skip
        except MeshwrightError as error:
            candidate = Candidate(name, mesh, tuple(tactics), why_not=str(error))
        else:
            if candidate.fits(self.limit) and self._is_best(candidate):
                self.lowered = candidate, decided.lowered
            if name == FOUND:
                beside = RULES[self.space.machine.compiler].overlaps
                self.exposed[mesh] = exposed_by_role(
                    found.program, found.timeline, beside
                )
        self.candidates.append(candidate)
        self.longest_s = max(self.longest_s, self.clock() - began)
        if not candidate.why_not:
            gib = candidate.peak_memory_bytes / 2**30
            self.on_progress(
                f"{name} on {shape_text(mesh)}: "
                f"{candidate.step_time_s * 1e3:.1f} ms, {gib:.1f} GiB"
            )
        return candidate

    def _is_best(self, candidate: Candidate) -> bool:
        """Whether it comes before all that fit so far."""
        best = self.best()
        return best is None or self.order(candidate) < self.order(best)

    @property
    def has_fitting(self) -> bool:
        """Whether anything that was simulated fits."""
        return self.best() is not None

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

    def best(self) -> Candidate | None:
        """Of those that fit."""
        fitting = (c for c in self.candidates if c.fits(self.limit))
        return min(fitting, key=self.order, default=None)

    def order(self, candidate: Candidate) -> tuple[float, float, int, bool]:
        """The smaller the better; of two alike an expert's, which is easier to read."""
        seconds, num_bytes = candidate.step_time_s, candidate.peak_memory_bytes
        return self.value_of(candidate), seconds, num_bytes, candidate.name == FOUND

    def nothing_fits(self) -> str:
        """By how much the smallest plan is too large, and what would help."""
        run = [c for c in self.candidates if not c.why_not]
        if not run:
            return "no plan was found at all: nothing in this program can be cut so"
        least = min(run, key=lambda c: c.peak_memory_bytes)
        needed, limit = (_gib(n) for n in (least.peak_memory_bytes, self.limit))
        factor = least.peak_memory_bytes / self.limit
        return (
            f"nothing fits: the smallest plan found ({least.name} on "
            f"{shape_text(least.mesh)}) takes {needed} GiB a device of {limit}; "
            f"{factor:.2f} times the chips, as much less batch, or chips with "
            "more memory would do, or more that is made again (mw.recompute)"
        )


def _gib(num_bytes: float) -> str:
    """With a decimal, or three figures where that is little."""
    gib = num_bytes / 2**30
    return f"{gib:.1f}" if gib >= 1 else f"{gib:.3g}"
