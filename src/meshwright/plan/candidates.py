"""Plans that were looked at, and what the search knows of them."""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.machine import Mesh
from meshwright.tactics import Tactic


@dataclass(frozen=True, slots=True)
class Candidate:
    """One plan, simulated.

    name: of the strategy. why_not: why it cannot be, "" if it can; the rest is unset then.
    step_time_s, peak_memory_bytes: as simulated.
    """

    name: str
    mesh: Mesh
    tactics: tuple[Tactic, ...]
    step_time_s: float = float("inf")
    peak_memory_bytes: int = 0
    why_not: str = ""

    def fits(self, limit: float) -> bool:
        """Whether it runs, within so many bytes."""
        return not self.why_not and self.peak_memory_bytes <= limit


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
    by the same prices. seconds: of the search. spelled: the best plan of the integer
    program as ordinary tactics, if there was time to find them.
    """

    candidates: tuple[Candidate, ...]
    limit_bytes: float
    model_s: float
    bound_s: float
    seconds: float
    num_meshes: int
    spelled: Spelling | None = None

    @property
    def gap(self) -> float:
        """Share of its time that a better plan could save, by the program's prices."""
        return max(0.0, 1 - self.bound_s / self.model_s) if self.model_s else 0.0
