"""Plans with a predicted price that have not been simulated yet, and their order."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.solve.optimum import Choices

FOUND = "auto"
"""Name of the plans that integer programs find."""

_TOLERANCE = 1.1
"""Predicted memory, relative to the limit, up to which a plan may fit when simulated."""

type OnProgress = Callable[[str], None]
"""A function that is called with a line of text whenever a search got on."""

type ValueOf = Callable[[float, float], float]
"""The objective of seconds and bytes, to be small; it rises with them or ignores them."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan with the time and peak memory that the integer program predicts.

    choices: the plan as choices of the model's variables; for an expert's plan the
    nearest ones. bound: lower bound of the seconds of all plans that fit, at the same
    prices; 0 if unknown, as for expert plans and for plans of less memory than allowed.
    unlimited: the optimum regardless of memory, if it is known and does not fit.
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
    """Whether the objective prefers a plan of half the memory and the same time."""
    seconds, num_bytes = proposal.seconds, proposal.bytes
    return value_of(seconds, 0.5 * num_bytes) < value_of(seconds, num_bytes)


def interleave(
    proposals: Sequence[Proposal], limit: float, value_of: ValueOf
) -> Iterator[Proposal]:
    """Proposals in the order of simulation: a found one, an expert's, and so on.

    Each kind is in the order of `Proposal.rank`, but no expert strategy is repeated on
    another mesh before all strategies have come once, and of strategies with the same
    choices only one comes before the others.
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
