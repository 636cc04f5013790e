"""A candidate plan with its simulated figures, and the difference of two candidates."""

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Tactic


@dataclass(frozen=True, slots=True)
class Candidate:
    """A simulated plan, or a plan that could not be made.

    name: name of its strategy.
    step_time_s, peak_memory_bytes: simulated time of a step and peak memory of a
        device.
    why_not: the reason why the plan could not be made, else "".
    breakdown: seconds of the step by cause, which add up to the step time.
        Communication that is hidden behind computation is left out.
    limit_bytes: bytes of each device's memory that the plan may use.
    """

    name: str
    mesh: Mesh
    tactics: tuple[Tactic, ...]
    step_time_s: float = float("inf")
    peak_memory_bytes: int = 0
    why_not: str = ""
    breakdown: tuple[tuple[str, float], ...] = ()
    limit_bytes: float = float("inf")

    @property
    def fits(self) -> bool:
        """Whether the plan could be made and its peak memory is within `limit_bytes`."""
        return not self.why_not and self.peak_memory_bytes <= self.limit_bytes


def visible_parts(breakdown: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    """The parts of a time breakdown that add up to the step time.

    Parts of 0 s and communication that is hidden behind computation are left out.
    """
    return tuple(
        (name, seconds)
        for name, seconds in breakdown.items()
        if seconds and not name.endswith("hidden")
    )


def differences(one: Candidate, other: Candidate) -> tuple[tuple[str, float], ...]:
    """Seconds by which `one` takes longer than `other`, by cause, the largest first.

    A number is negative if `one` spends less time on that cause. The numbers add up to
    the difference of the step times.
    """
    own, others = dict(one.breakdown), dict(other.breakdown)
    found = [
        (name, own.get(name, 0.0) - others.get(name, 0.0)) for name in own | others
    ]
    return tuple(sorted(found, key=lambda each: (-abs(each[1]), each[0])))
