"""The result of a search: all simulated plans, and the gap to the optimum."""

from dataclasses import dataclass
from typing import Any

from meshwright.partitioner.tactics import Tactic
from meshwright.planner.candidates.candidate import Candidate, differences

REJECTED = "by the compiler: "
"""Start of `Candidate.why_not` if the real compiler rejects a simulated plan."""

SEARCHES = ("program", "tree", "experts")
"""Names of the search methods.

"program" solves an integer program; "tree" is a tree search over shardings of inputs;
"experts" only simulates the strategies that experts use by hand.
"""


@dataclass(frozen=True, slots=True)
class Spelling:
    """A found plan rewritten as ordinary tactics, and the figures simulated for them.

    text: the tactics as Python code, one per line, after `import meshwright as mw`.
    """

    tactics: tuple[Tactic, ...]
    text: str
    step_time_s: float
    peak_memory_bytes: int


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The record of one search.

    candidates: all simulated plans, the best first.
    limit_bytes: bytes of each device's memory that plans may use.
    model_s: step time of the best plan, as predicted by the integer program.
    bound_s: lower bound on the predicted step time of all plans of `bounded`.
    bounded: the plans that `bound_s` and `gap` bound: their program and their mesh.
    seconds: real duration of the search.
    num_meshes, all_meshes: number of meshes that were solved, and of all meshes that no
        bound excludes. Meshes are skipped for lack of time or after an interrupt.
    spelled: the best plan of the integer program as ordinary tactics, if there was
        time.
    method: one of `SEARCHES`, or "pipeline". Only "program" has a bound; the others have a
        model_s and bound_s of 0.
    num_states: number of states that a tree search priced.
    work_s: counted work of the search, in seconds on a typical machine; a budget limits
        this figure rather than real time.
    is_cut: whether the search was cut short because its real time was far above its
        counted work. Only such a search may find another plan when it is repeated.
    is_compiled: whether the machine's real compiler accepted the first candidate. The
        `why_not` of a plan that it rejected says so.
    stored_as: a sentence that names the plan whose weights have the same shardings, if
        the search was given one.
    left_out: a sentence about the meshes that a bound excludes, if there are any.
    remarks: more sentences that a reader of the plan must know.
    """

    candidates: tuple[Candidate, ...]
    limit_bytes: float
    model_s: float
    bound_s: float
    seconds: float
    num_meshes: int
    all_meshes: int
    is_interrupted: bool = False
    bounded: str = ""
    spelled: Spelling | None = None
    method: str = "program"
    num_states: int = 0
    work_s: float = 0.0
    is_cut: bool = False
    is_compiled: bool = False
    stored_as: str = ""
    left_out: str = ""
    remarks: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences about the search that a reader of the plan must know.

        Mostly none.
        """
        found = [note for note in (self.stored_as, self.left_out) if note]
        if self.is_cut:
            found.append(
                f"cut short after {self.seconds:.0f} s, since this machine was too slow or "
                "too busy for the search's budget; another run may find another plan"
            )
        for each in self.candidates if self.is_compiled else ():
            if each.why_not.startswith(REJECTED):
                found.append(
                    f"{each.name} on {each.mesh} was better, but {each.why_not}"
                )
        return (*found, *self.remarks)

    @property
    def frontier(self) -> tuple[Candidate, ...]:
        """The Pareto frontier of step time and memory, the fastest plan first.

        Each plan takes longer than the one before it, and less memory.
        """
        runs = (c for c in self.candidates if not c.why_not)
        found: list[Candidate] = []
        for each in sorted(runs, key=lambda c: (c.step_time_s, c.peak_memory_bytes)):
            if not found or each.peak_memory_bytes < found[-1].peak_memory_bytes:
                found.append(each)
        return tuple(found)

    @property
    def gap(self) -> float:
        """Relative optimality gap: the plans of `bounded` save at most this share of time.

        The time is that which the integer program predicts for the best plan. Plans on
        other meshes, and plans that recompute something else, may save more.
        """
        return max(0.0, 1 - self.bound_s / self.model_s) if self.model_s else 0.0

    def to_json(self) -> dict[str, Any]:
        """All fields for `json.dumps`; plans that could not be made have null figures.

        The real duration is left out, so that two runs of the same search give equal
        records.
        """
        best = self.candidates[0]
        return {
            **{name: getattr(self, name) for name in _FIGURES},
            "notes": list(self.notes),
            "candidates": [self._fields(each, best) for each in self.candidates],
            "spelled": self.spelled
            and {name: getattr(self.spelled, name) for name in _OF_SPELLING},
        }

    def _fields(self, candidate: Candidate, best: Candidate) -> dict[str, Any]:
        runs = not candidate.why_not
        return {
            "name": candidate.name,
            "mesh": candidate.mesh.shape,
            "tactics": [str(tactic) for tactic in candidate.tactics],
            "step_time_s": candidate.step_time_s if runs else None,
            "peak_memory_bytes": candidate.peak_memory_bytes if runs else None,
            "fits": candidate.fits,
            "why_not": candidate.why_not,
            "breakdown": dict(candidate.breakdown),
            "longer_s": dict(differences(candidate, best)) if runs else {},
        }


_FIGURES = (
    "method", "num_states", "limit_bytes", "model_s", "bound_s", "gap", "bounded", "work_s",
    "is_cut", "is_compiled", "notes", "num_meshes", "all_meshes", "is_interrupted",
)  # fmt: skip
"""Entries of the JSON that are attributes."""

_OF_SPELLING = ("text", "step_time_s", "peak_memory_bytes")
