"""What is searched: states, what can be done in them, and what they cost.

A search knows nothing else. Two states with one key are the same state, however they were
reached (a transposition); only the first of them is ever priced.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

type Prior = Callable[[Any, Sequence[Any]], Sequence[float]]
"""Of a state and its actions, a weight for each: how soon it is worth trying.

Weights change the order in which actions are tried and never rule one out; those of zero
come last.
"""


class Problem[S, A: Hashable](Protocol):
    """States `S` and actions `A`: immutable values, the same ones for the same input."""

    def start(self) -> S:
        """The state in which nothing is decided yet."""
        ...

    def actions(self, state: S) -> Sequence[A]:
        """What can be done in a state, without repetition; empty where all is decided.

        A search may stop in any state, not only in those without actions.
        """
        ...

    def apply(self, state: S, action: A) -> S:
        """The state after one of its actions."""
        ...

    def cost(self, state: S) -> float:
        """What a state costs, lower being better; infinite if it cannot be used."""
        ...

    def key(self, state: S) -> Hashable:
        """The same for two states exactly if they can be taken for each other."""
        ...
