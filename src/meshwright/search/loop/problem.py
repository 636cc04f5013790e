"""The interface of a search problem: states, actions and costs.

Two states with equal keys count as the same state, however they were reached
(transpositions). The cost is computed only for the first of them.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

type Prior = Callable[[Any, Sequence[Any]], Sequence[float]]
"""A function from a state and its actions to one weight per action.

Actions of larger weight are tried first. No action is excluded: actions of weight zero
come last.
"""


class Problem[S, A: Hashable](Protocol):
    """A deterministic search problem over immutable states `S` and actions `A`."""

    def start(self) -> S:
        """The initial state, in which no action has been taken."""
        ...

    def actions(self, state: S) -> Sequence[A]:
        """Actions of a state, without repetition; empty in a terminal state.

        A search may stop in any state, not only in those without actions.
        """
        ...

    def apply(self, state: S, action: A) -> S:
        """The state that follows when an action is taken in a state."""
        ...

    def cost(self, state: S) -> float:
        """The cost of a state, to be minimized; infinite if the state is infeasible."""
        ...

    def key(self, state: S) -> Hashable:
        """The identity of a state; equal for two states if they are interchangeable."""
        ...
