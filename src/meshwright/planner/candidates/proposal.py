"""Proposals: plans with a predicted time and memory that are not simulated yet.

The file also has the order in which a search simulates them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.solve.optimum import Choices

FOUND = "auto"
"""Name of every plan that the integer program finds, as opposed to expert plans."""

_TOLERANCE = 1.1
"""Largest predicted memory, relative to the limit, of a plan that may still fit.

The prediction is not exact; the simulation decides.
"""

type OnProgress = Callable[[str], None]
"""A function that is called with a line of text whenever the search makes progress."""

type ValueOf = Callable[[float, float], float]
"""The objective as a function of step seconds and peak bytes; smaller is better.

It never falls when the seconds or the bytes rise.
"""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan with the time and peak memory that the integer program predicts.

    seconds, bytes: predicted step time, and predicted peak bytes of a device.
    choices: the plan as choices of the integer program's variables; for an expert's
        plan, the choices nearest to it.
    bound: lower bound on the predicted seconds of every plan that fits into memory; 0
        if unknown, as for expert plans and for plans that were limited to less memory
        than the user allows.
    unlimited: choices of the fastest plan regardless of memory, if they are known and
        do not fit.
    """

    name: str
    mesh: Mesh
    tactics: tuple[Tactic, ...]
    seconds: float
    bytes: float
    choices: Choices
    bound: float = 0.0
    unlimited: Choices | None = None

    def rank(self, limit: float, value_of: ValueOf) -> tuple[bool, float, float]:
        """A sort key: plans that may fit first, then plans with the best objective.

        limit: bytes of memory per device that a plan may use.
        """
        is_large = self.bytes > _TOLERANCE * limit
        return is_large, value_of(self.seconds, self.bytes), self.seconds


def counts_memory(value_of: ValueOf, proposal: Proposal) -> bool:
    """Whether the objective depends on memory.

    It does if half of the proposal's bytes lowers the objective.
    """
    seconds, num_bytes = proposal.seconds, proposal.bytes
    return value_of(seconds, 0.5 * num_bytes) < value_of(seconds, num_bytes)


def interleave(
    proposals: Sequence[Proposal], limit: float, value_of: ValueOf
) -> Iterator[Proposal]:
    """Proposals in the order of simulation: found plans and expert plans in turn.

    Both kinds are sorted by `Proposal.rank`. Each expert strategy comes once before any
    strategy comes again on another mesh. Of expert strategies with equal choices on a
    mesh, only the first comes in that first round.
    """
    ranked = sorted(proposals, key=lambda p: p.rank(limit, value_of))
    own = [p for p in ranked if p.name == FOUND]
    once: list[Proposal] = []
    repeated: list[Proposal] = []
    seen: set[object] = set()
    for expert in (p for p in ranked if p.name != FOUND):
        keys = {expert.name, (expert.mesh, expert.choices)}
        (once if seen.isdisjoint(keys) else repeated).append(expert)
        seen |= keys
    pairs = zip_longest(own, (*once, *repeated))
    return (p for pair in pairs for p in pair if p is not None)
