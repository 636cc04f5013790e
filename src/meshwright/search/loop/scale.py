"""Rewards between 0 and 1 from costs of any unit and spread."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort


class Scale:
    """The costs seen so far, sorted, and ranks of other costs among them.

    Ranks, not values, because costs have long tails: a plan that exceeds memory may cost a
    hundred times a good one. On a linear scale all good plans would get the same reward.
    """

    def __init__(self) -> None:
        self._costs: list[float] = []

    def reward(self, cost: float) -> float:
        """Reward of a cost: the share of higher costs seen so far, to the power of three.

        The cost is added to those seen. An infinite cost has reward 0.
        """
        if cost == math.inf:
            return 0.0
        costs = self._costs
        rank = bisect_left(costs, cost) + bisect_right(costs, cost)
        share = 1 - rank / (2 * len(costs)) if costs else 0.5
        insort(costs, cost)
        return share**3

    def bounds(self) -> tuple[float, float]:
        """Median of the costs seen, and its distance to the lowest."""
        costs = self._costs
        if not costs:
            return 0.0, 1.0
        middle = costs[len(costs) // 2]
        return middle, middle - costs[0] or 1.0
