"""What actions are worth wherever they are taken."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable


class Merits[A: Hashable]:
    """Per action, the mean reward of all trajectories in which it was taken.

    Where the order of decisions matters little, what was learned of an action in one
    state holds in most others (Finnsson and Bjornsson, AAAI 2008: move averages).
    """

    def __init__(self) -> None:
        self._sums: dict[A, tuple[int, float]] = {}

    def learn(self, actions: Iterable[A], reward: float) -> None:
        sums = self._sums
        for action in actions:
            count, total = sums.get(action, (0, 0.0))
            sums[action] = count + 1, total + reward

    def of(self, action: A) -> float:
        """The mean reward; infinite for an action that nobody took."""
        sums = self._sums.get(action)
        return math.inf if sums is None else sums[1] / sums[0]
