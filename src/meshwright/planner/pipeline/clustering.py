"""Clustering of blocks into layers, the units that stages are made of.

Alpa's dynamic program (Zheng et al., OSDI 2022, section 5.2): among all cuts of the
sequence of blocks into layers whose operations are balanced, one with the fewest bytes
between layers. Stages are then cut between layers only.
"""

from collections.abc import Sequence

import numpy as np

from meshwright.errors import PlanError
from meshwright.search.arrays import Floats, Ints

BALANCE = 0.5
"""Largest excess of a layer's operations over the average (Alpa's default)."""


def cluster(
    flops: Sequence[float],
    incoming_bytes: Sequence[float],
    num_layers: int,
    balance: float = BALANCE,
) -> tuple[int, ...]:
    """Positions of the first block of each layer, for the best layers of similar work.

    flops, incoming_bytes: per block, as in `Block`. balance: a layer has at most
    (1 + balance) times the average operations, or those of the largest block if that has
    more.
    The best layers minimize the largest bytes that enter a layer. Ties are decided by the
    total of these bytes, and then by the sum of squares of the layers' operations.
    """
    num_blocks = len(flops)
    if not 1 <= num_layers <= num_blocks:
        raise PlanError(
            f"{num_layers} layers of {num_blocks} blocks; wanted 1 to {num_blocks}"
        )
    sums = np.concatenate([[0.0], np.cumsum(np.asarray(flops, float))])
    most = max((1 + balance) * sums[-1] / num_layers, max(flops))
    incoming = np.asarray(incoming_bytes, float).copy()
    incoming[0] = 0.0
    largest = _Cuts(sums, most, incoming, np.maximum)
    widest = largest.best(num_layers)
    if widest == np.inf:
        # Uneven blocks leave no balanced cut: the limit is raised as far as need be.
        return cluster(flops, incoming_bytes, num_layers, 2 * balance + 0.1)
    costs = np.where(incoming <= widest, incoming, np.inf)
    # Less than a byte in all, so that squares only decide between equal bytes.
    weight = 1 / (4 * num_layers * max(most, 1.0) ** 2)
    totals = _Cuts(sums, most, costs, np.add, weight)
    totals.best(num_layers)
    return totals.starts()


class _Cuts:
    """The dynamic program over the ends of layers.

    sums: operations of all blocks before each one, [N + 1]. most: of a layer.
    incoming: cost of a layer that starts at each block, [N]. combine: of a layer's cost
    and that of the layers before it. weight: cost of the square of a layer's operations.
    """

    def __init__(
        self, sums: Floats, most: float, incoming: Floats, combine: np.ufunc,
        weight: float = 0.0,
    ) -> None:  # fmt: skip
        self.sums, self.most, self.incoming = sums, most, incoming
        self.combine, self.weight = combine, weight
        self.chosen: list[Ints] = []

    def best(self, num_layers: int) -> float:
        """The least cost of cutting all blocks into so many layers."""
        sums, num = self.sums, len(self.incoming)
        # Blocks from `lows[end]` on fit into one layer that ends before `end`.
        lows = np.searchsorted(sums, sums - self.most * (1 + 1e-12), side="left")
        cost = np.full(num + 1, np.inf)
        cost[0] = 0.0
        for _ in range(num_layers):
            after, chosen = np.full(num + 1, np.inf), np.zeros(num + 1, np.int64)
            for end in range(1, num + 1):
                low = int(lows[end])
                squares = np.square(sums[end] - sums[low:end])
                own = self.incoming[low:end] + self.weight * squares
                options = self.combine(cost[low:end], own)
                index = int(np.argmin(options))
                after[end], chosen[end] = options[index], low + index
            cost = after
            self.chosen.append(chosen)
        return float(cost[num])

    def starts(self) -> tuple[int, ...]:
        """The first block of each layer of the best cut."""
        found: list[int] = []
        end = len(self.incoming)
        for chosen in reversed(self.chosen):
            end = int(chosen[end])
            found.append(end)
        return tuple(reversed(found))
