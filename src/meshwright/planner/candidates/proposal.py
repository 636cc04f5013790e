"""Plans with a predicted price that have not been simulated yet, and their order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.solve.optimum import Choices

FOUND = "auto"
"""Name of every plan that an integer program finds."""

_TOLERANCE = 1.1
"""Largest predicted memory, relative to the limit, of a plan that may still fit when it
is simulated."""

type OnProgress = Callable[[str], None]
"""A function that receives a line of text whenever the search makes progress."""

type ValueOf = Callable[[float, float], float]
"""The objective as a function of step seconds and peak bytes; smaller is better. It
never falls when one of them rises."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan with the time and peak memory that the integer program predicts.

    seconds, bytes: predicted step time and peak bytes of a device. choices: the plan as
    choices of the integer program's variables; for an expert's plan, the nearest ones.
    bound: lower bound on the predicted seconds of every plan that fits; 0 if unknown,
    as for expert plans and for plans that were limited to less memory than the user
    allows. unlimited: choices of the fastest plan regardless of memory, if it is known
    and does not fit.
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
        """A sort key: plans that may fit first, then the best by the objective."""
        is_large = self.bytes > _TOLERANCE * limit
        return is_large, value_of(self.seconds, self.bytes), self.seconds


def counts_memory(value_of: ValueOf, proposal: Proposal) -> bool:
    """Whether the objective depends on memory: whether half of a plan's bytes lowers it."""
    seconds, num_bytes = proposal.seconds, proposal.bytes
    return value_of(seconds, 0.5 * num_bytes) < value_of(seconds, num_bytes)


def interleave(
    proposals: Sequence[Proposal], limit: float, value_of: ValueOf
) -> Iterator[Proposal]:
    """Proposals in the order of simulation: found plans and expert plans in turn.

    Both kinds are sorted by `Proposal.rank`. Each expert strategy comes once before any
    comes again on another mesh. Of strategies with equal choices on a mesh, only the
    first comes in that first round.
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
