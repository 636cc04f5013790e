"""Plans that were looked at, and what the search knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Tactic


@dataclass(frozen=True, slots=True)
class Candidate:
    """One plan, simulated.

    name: of the strategy. why_not: why it cannot be, "" if it can; the rest is unset then.
    step_time_s, peak_memory_bytes: as simulated. breakdown: seconds of the step by what
    fills them, as in `Estimate`, but for what is hidden; they add up to it.
    """

    name: str
    mesh: Mesh
    tactics: tuple[Tactic, ...]
    step_time_s: float = float("inf")
    peak_memory_bytes: int = 0
    why_not: str = ""
    breakdown: tuple[tuple[str, float], ...] = ()

    def fits(self, limit: float) -> bool:
        """Whether it runs, within so many bytes."""
        return not self.why_not and self.peak_memory_bytes <= limit


def visible(breakdown: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """Of a breakdown what adds up to the step: all but what is hidden beside it."""
    return tuple(
        (name, seconds)
        for name, seconds in breakdown.items()
        if seconds and not name.endswith("hidden")
    )


def differences(one: Candidate, other: Candidate) -> tuple[tuple[str, float], ...]:
    """Seconds by which `one` takes longer, by what fills them; the largest first.

    Negative where it takes less. All of them together are the difference of the steps.
    """
    own, others = dict(one.breakdown), dict(other.breakdown)
    found = [
        (name, own.get(name, 0.0) - others.get(name, 0.0)) for name in own | others
    ]
    return tuple(sorted(found, key=lambda each: (-abs(each[1]), each[0])))


@dataclass(frozen=True, slots=True)
class Spelling:
    """A found plan as people would write it: ordinary tactics, and what they come to.

    text: the tactics, one a line, as typed below `import meshwright as mw`.
    """

    tactics: tuple[Tactic, ...]
    text: str
    step_time_s: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class Search:
    """How a plan was found.

    candidates: all that were simulated, the found one first. model_s: what the integer
    program says of the found plan, and bound_s, below which no plan on its mesh can be
    by the same prices. seconds: of the search. num_meshes, all_meshes: that it looked at,
    and that there were; for the others the budget left no time, or an interrupt. spelled:
    the best plan of the integer program as ordinary tactics, if there was time to find
    them.
    """

    candidates: tuple[Candidate, ...]
    limit_bytes: float
    model_s: float
    bound_s: float
    seconds: float
    num_meshes: int
    all_meshes: int
    is_interrupted: bool = False
    spelled: Spelling | None = None

    @property
    def frontier(self) -> tuple[Candidate, ...]:
        """Of the plans that run, those than which none is faster and smaller.

        The fastest first; each takes longer than the one before it, and less memory.
        """
        runs = (c for c in self.candidates if not c.why_not)
        found: list[Candidate] = []
        for each in sorted(runs, key=lambda c: (c.step_time_s, c.peak_memory_bytes)):
            if not found or each.peak_memory_bytes < found[-1].peak_memory_bytes:
                found.append(each)
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        """All of it for `json.dumps`; times and memory of what cannot be are null."""
        best = self.candidates[0]
        return {
            "limit_bytes": self.limit_bytes,
            "model_s": self.model_s,
            "bound_s": self.bound_s,
            "gap": self.gap,
            "seconds": self.seconds,
            "num_meshes": self.num_meshes,
            "all_meshes": self.all_meshes,
            "is_interrupted": self.is_interrupted,
            "candidates": [self._fields(each, best) for each in self.candidates],
            "spelled": self.spelled
            and {
                "text": self.spelled.text,
                "step_time_s": self.spelled.step_time_s,
                "peak_memory_bytes": self.spelled.peak_memory_bytes,
            },
        }

    def _fields(self, candidate: Candidate, best: Candidate) -> dict[str, Any]:
        runs = not candidate.why_not
        return {
            "name": candidate.name,
            "mesh": candidate.mesh.shape,
            "tactics": [str(tactic) for tactic in candidate.tactics],
            "step_time_s": candidate.step_time_s if runs else None,
            "peak_memory_bytes": candidate.peak_memory_bytes if runs else None,
            "fits": candidate.fits(self.limit_bytes),
            "why_not": candidate.why_not,
            "breakdown": dict(candidate.breakdown),
            "longer_s": dict(differences(candidate, best)) if runs else {},
        }

    @property
    def gap(self) -> float:
        """Share of its time that a better plan could save, by the program's prices."""
        return max(0.0, 1 - self.bound_s / self.model_s) if self.model_s else 0.0
