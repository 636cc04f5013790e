"""Plans by their price, before they are simulated, and in which order they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from meshwright.machine import Mesh
from meshwright.partitioner.tactics import Tactic
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.solve.optimum import Choices

FOUND = "auto"
"""Name of what integer programs find."""

_ABOUT = 1.1
"""Times the limit that a plan may take by the model and still fit."""

type OnProgress = Callable[[str], None]

type ValueOf = Callable[[Candidate], float]
"""What is to be small of a plan; it neither falls with its time nor with its memory."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A plan by its price in the model: seconds, and bytes at the fullest moment.

    choices: of the model's variables, that it makes or that come nearest to it.
    bound: by the prices that it was found by no plan that fits takes less; 0 of experts',
    and of those that were asked to take less memory than there is.
    """

    name: str
    mesh: Mesh
    tactics: tuple[Tactic, ...]
    seconds: float
    bytes: float
    choices: Choices
    bound: float = 0.0

    @property
    def candidate(self) -> Candidate:
        """As if it had been simulated so."""
        return Candidate(
            self.name, self.mesh, self.tactics, self.seconds, int(self.bytes)
        )

    def rank(self, limit: float, value_of: ValueOf) -> tuple[bool, float, float]:
        """The smaller the more it promises."""
        is_large = self.bytes > _ABOUT * limit
        return is_large, value_of(self.candidate), self.seconds


def counts_memory(value_of: ValueOf, proposal: Proposal) -> bool:
    """Whether a plan would be the better for taking less memory and no less time."""
    less = replace(proposal, bytes=0.5 * proposal.bytes)
    return value_of(less.candidate) < value_of(proposal.candidate)


def in_turns(
    proposals: Sequence[Proposal], limit: float, value_of: ValueOf
) -> Iterator[Proposal]:
    """Those that seem to fit first; found ones and experts' by turns, the best first.

    Of each expert's strategy one mesh comes before any comes again, and of strategies
    that come to the same choices one before the others.
    """
    ranked = sorted(proposals, key=lambda p: p.rank(limit, value_of))
    own = [p for p in ranked if p.name == FOUND]
    once: list[Proposal] = []
    again: list[Proposal] = []
    seen: set[object] = set()
    for expert in (p for p in ranked if p.name != FOUND):
        keys = {expert.name, (expert.mesh, expert.choices)}
        (once if seen.isdisjoint(keys) else again).append(expert)
        seen |= keys
    pairs = zip_longest(own, (*once, *again))
    return (p for pair in pairs for p in pair if p is not None)
