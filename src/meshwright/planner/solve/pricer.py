"""Predicted time and memory of choices of an integer program, and one solve of it.

The solve minimizes seconds plus bytes times a price.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshwright.errors import AssignmentError
from meshwright.planner.integer_program.integer_program import (
    IntegerProgram,
    PairCost,
)
from meshwright.planner.integer_program.live_counts import LiveCounts
from meshwright.planner.solve.optimum import Choices
from meshwright.search.arrays import Floats
from meshwright.search.assignment import Assignment, Solution, SolveOptions, solve
from meshwright.search.work import Meter, Work

GOOD_ENOUGH = 0.003
"""Relative optimality gap at which the solver stops."""

_BUILD = Work("build", 2e-5)
"""Counted work to build the problem for the solver, per pair cost."""

_SHORTEST_S = 0.3
"""Least seconds of a solve, even if no time is left."""

_MAX_EXTENSIONS = 3
"""Number of times that a solve without any solution is repeated with triple time."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Conditions that end one solve.

    seconds: time by `meter`; exceeded only as long as there is no solution.
    rounds, stop_bound: as in `SolveOptions`.
    """

    seconds: float
    rounds: int
    stop_bound: float
    meter: Meter


@dataclass(frozen=True, slots=True)
class Pricer:
    """The parts of an integer program that determine seconds and bytes of choices.

    It is small enough to be sent to the solver process, unlike an `IntegerProgram` with
    its graph.
    costs, pair_costs, result_bytes: as in `IntegerProgram`.
    live_counts: numbers of values in memory at moments of a step.
    gap: relative optimality gap at which the solver stops.
    """

    costs: tuple[Floats, ...]
    pair_costs: tuple[PairCost, ...]
    result_bytes: tuple[tuple[Floats, ...], ...]
    live_counts: LiveCounts
    seed: int = 0
    gap: float = GOOD_ENOUGH

    @classmethod
    def of(cls, model: IntegerProgram, lives: LiveCounts, seed: int = 0) -> Pricer:
        """The pricer of an integer program; seed: for the solver's random numbers."""
        return cls(model.costs, model.pair_costs, model.result_bytes, lives, seed)

    def seconds(self, choices: Sequence[int]) -> float:
        """Predicted seconds of a step; infinite if two choices exclude each other."""
        return self._node_seconds(choices) + float(sum(self._pair_seconds(choices)))

    def finite_seconds(self, choices: Sequence[int]) -> float:
        """Predicted seconds of a step, if choices that exclude each other cost 0.

        Choices read from an expert's plan may contain such pairs, since the integer
        program does not have every sharding of a shared value.
        """
        finite = (s for s in self._pair_seconds(choices) if s < np.inf)
        return self._node_seconds(choices) + float(sum(finite))

    def _pair_seconds(self, choices: Sequence[int]) -> Iterator[float]:
        return (e.seconds[choices[e.first], choices[e.second]] for e in self.pair_costs)

    def memory_curve(self, choices: Sequence[int]) -> Floats:
        """Predicted bytes in a device's memory at each sampled moment, [T]."""
        total = np.zeros(self.live_counts.num_times)
        for (group, result), counts in self.live_counts.counts.items():
            total += counts * self.result_bytes[group][result][choices[group]]
        for link in self.pair_costs:
            share = link.copy_share[choices[link.first], choices[link.second]]
            if share and link.copy_key in self.live_counts.copies:
                total += share * link.num_bytes * self.live_counts.copies[link.copy_key]
        return total

    def peak_bytes(self, choices: Sequence[int]) -> float:
        """Predicted bytes in a device's memory at the sampled moment with the most."""
        return float(self.memory_curve(choices).max())

    def _node_seconds(self, choices: Sequence[int]) -> float:
        return float(sum(c[x] for c, x in zip(self.costs, choices, strict=True)))

    def cheapest(
        self,
        prices: Floats,
        limits: Limits,
        starts: Sequence[Choices] = (),
        messages: Floats | None = None,
    ) -> tuple[Choices, float, Floats | None]:
        """The cheapest choices, a lower bound on the cost, and the dual messages.

        The cost is seconds plus bytes times their price. The messages are the solver's
        dual solution, from which a next solve can start.
        prices: seconds per byte at each sampled moment, [T].
        starts: known choices; the solve starts from the cheapest of them.
        messages: as in `SolveOptions`.
        """
        problem = self.program(prices)
        start = min(starts, key=lambda s: problem.cost(np.array(s)), default=None)
        limits.meter.count(_BUILD, len(self.pair_costs))
        options = SolveOptions(
            self.gap, limits.stop_bound, start, limits.rounds, messages
        )
        found = _solve(problem, limits, options, self.seed)
        choices = tuple(int(x) for x in found.choices)
        return choices, float(found.bound), found.messages

    def program(self, prices: Floats) -> Assignment:
        """The assignment problem whose costs are seconds plus bytes times their price.

        prices: seconds per byte at each sampled moment, [T].
        """
        paid = {
            key: float(prices @ row) for key, row in self.live_counts.counts.items()
        }
        more = {
            key: float(prices @ row) for key, row in self.live_counts.copies.items()
        }
        costs = [
            c
            + sum(
                (p * h for r, h in enumerate(held) if (p := paid.get((g, r), 0.0))), 0.0
            )
            for g, (c, held) in enumerate(
                zip(self.costs, self.result_bytes, strict=False)
            )
        ]
        costs += self.costs[len(costs) :]
        edges = [
            (e.first, e.second, _priced_link(e, more.get(e.copy_key, 0.0)))
            for e in self.pair_costs
        ]
        return Assignment.of(costs, edges)  # pyright: ignore[reportArgumentType]


def _solve(
    problem: Assignment, limits: Limits, options: SolveOptions, seed: int
) -> Solution:
    """The best solution within `limits`, or the first one if none is found in time.

    A solution always exists, since everything may be replicated.
    """
    seconds, meter = max(limits.seconds, _SHORTEST_S), limits.meter
    for _ in range(_MAX_EXTENSIONS):
        try:
            return solve(problem, seconds, seed, options=options, meter=meter)
        except AssignmentError:
            seconds *= 3
            # The solver may have stopped at the bound before it had a solution.
            options = replace(options, stop_bound=math.inf)
    return solve(problem, seconds, seed, options=options, meter=meter)


def _priced_link(link: PairCost, price: float) -> Floats:
    """Cost of each pair of choices of two variables that a value connects.

    It is the seconds of resharding, plus the bytes of the resharded copy times their
    price.
    """
    if not price:
        return link.seconds
    return link.seconds + price * link.num_bytes * link.copy_share
