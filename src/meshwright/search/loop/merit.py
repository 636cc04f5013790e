"""Merit of actions, independent of the state in which they are taken."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable


class Merits[A: Hashable]:
    """Mean reward of all trajectories that contain an action, for each action.

    If the order of decisions matters little, the merit of an action in one state is a good
    estimate in most others (move averages: Finnsson and Bjornsson, AAAI 2008).
    """

    def __init__(self) -> None:
        self._sums: dict[A, tuple[int, float]] = {}

    def learn(self, actions: Iterable[A], reward: float) -> None:
        sums = self._sums
        for action in actions:
            count, total = sums.get(action, (0, 0.0))
            sums[action] = count + 1, total + reward

    def of(self, action: A) -> float:
        """Mean reward of an action; infinite if it was never taken."""
        sums = self._sums.get(action)
        return math.inf if sums is None else sums[1] / sums[0]
