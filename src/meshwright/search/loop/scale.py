"""Rewards between 0 and 1 for costs of any unit and spread."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort


class Scale:
    """The costs seen so far, and where others lie among them.

    Costs have long tails: a plan without memory costs a hundred times what a good one
    does. Between the best and the worst all good ones would look alike.
    """

    def __init__(self) -> None:
        self._costs: list[float] = []

    def reward(self, cost: float) -> float:
        """By rank: the share of the costs seen that are higher, to the power of three.

        The cost joins them. What cannot be used is rewarded with 0.
        """
        if cost == math.inf:
            return 0.0
        costs = self._costs
        rank = bisect_left(costs, cost) + bisect_right(costs, cost)
        share = 1 - rank / (2 * len(costs)) if costs else 0.5
        insort(costs, cost)
        return share**3

    def bounds(self) -> tuple[float, float]:
        """The middle one of the costs seen, and how far below it the lowest is."""
        costs = self._costs
        if not costs:
            return 0.0, 1.0
        middle = costs[len(costs) // 2]
        return middle, middle - costs[0] or 1.0
