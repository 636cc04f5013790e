"""The cheapest choices that fit into memory, and how far from the best they can be.

Memory binds all groups at once, at each of many moments. It gets a price at each moment
(Lagrange multipliers): with the prices fixed the groups are bound only in pairs, and what
the cheapest choices then cost, less the price of the memory there is, bounds every plan
that fits from below. The prices follow the subgradient (Held and Karp, 1971; steps after
Polyak, 1969).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from meshwright.autoplan.lives import Lives
from meshwright.autoplan.model import Model, Table
from meshwright.errors import AssignmentError
from meshwright.search.assignment import Assignment, Solution, solve

MOST_ROUNDS = 24
"""Times that prices of memory are changed; each solves the whole program again."""

_PATIENCE = 3
"""Times that a program which has found nothing yet gets three times as long."""

type Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Optimum:
    """Choices of all variables of a model.

    seconds: of a step by the model. bytes: at its fullest moment. bound: no choices that
    fit into memory take less.
    """

    choices: tuple[int, ...]
    seconds: float
    bytes: float
    bound: float

    @property
    def gap(self) -> float:
        """Share of its seconds that a better plan could save at most."""
        return max(0.0, 1 - self.bound / self.seconds) if self.seconds else 0.0


class Pricer:
    """Seconds and bytes of choices of one model."""

    def __init__(self, model: Model, lives: Lives, seed: int = 0) -> None:
        self.model = model
        self.lives = lives
        self.seed = seed

    def seconds(self, choices: Sequence[int]) -> float:
        """Of a step."""
        model = self.model
        total = sum(c[x] for c, x in zip(model.costs, choices, strict=True))
        total += sum(
            e.seconds[choices[e.first], choices[e.second]] for e in model.links
        )
        return float(total)

    def curve(self, choices: Sequence[int]) -> Vector:
        """Bytes at each moment watched, [T]."""
        total = np.zeros(self.lives.num_times)
        for (group, result), counts in self.lives.counts.items():
            total += counts * self.model.held[group][result][choices[group]]
        for link in self.model.links:
            counts = self.lives.counts.get(link.made)
            if link.extra is not None and counts is not None:
                total += counts * link.extra[choices[link.first], choices[link.second]]
        return total

    def cheapest(self, prices: Vector, seconds: float) -> tuple[tuple[int, ...], float]:
        """The choices that cost least when memory has a price, and a lower bound."""
        paid = {key: float(prices @ row) for key, row in self.lives.counts.items()}
        costs = [
            c
            + sum(
                (p * h for r, h in enumerate(held) if (p := paid.get((g, r), 0.0))), 0.0
            )
            for g, (c, held) in enumerate(
                zip(self.model.costs, self.model.held, strict=False)
            )
        ]
        costs += self.model.costs[len(costs) :]
        edges = [
            (e.first, e.second, _with_price(e.seconds, e.extra, paid.get(e.made, 0.0)))
            for e in self.model.links
        ]
        found = _solve(Assignment.of(costs, edges), seconds, self.seed)  # pyright: ignore[reportArgumentType]
        return tuple(int(x) for x in found.choices), float(found.bound)


def _solve(problem: Assignment, seconds: float, seed: int) -> Solution:
    """The best choices of so many seconds, or the first ones after them."""
    for _ in range(_PATIENCE):
        try:
            return solve(problem, seconds, seed=seed)
        except AssignmentError:  # it has one, that in which nothing is cut
            seconds *= 3
    return solve(problem, seconds, seed=seed)


def _with_price(seconds: Table, extra: Table | None, price: float) -> Table:
    return seconds if extra is None or not price else seconds + price * extra


def find_optimum(
    pricer: Pricer,
    limit: float | None,
    clock: Callable[[], float],
    until: float,
) -> Optimum | None:
    """The cheapest choices found that fit into `limit` bytes; None if none did.

    clock: seconds; the search ends when it reads `until`.
    """
    none = np.zeros(pricer.lives.num_times)
    choices, bound = pricer.cheapest(none, until - clock())
    best = _seen(pricer, choices, bound)
    if limit is None or best.bytes <= limit:
        return best
    least = best.seconds
    best, prices, damping = None, none, 1.0
    target = 1.1 * least
    for _ in range(MOST_ROUNDS):
        if clock() >= until:
            break
        over = pricer.curve(choices) - limit
        if best is not None:
            target = best.seconds
        dual = pricer.seconds(choices) + float(prices @ over)
        norm = float(over @ over)
        step = damping * max(target - dual, 0.01 * least) / max(norm, 1.0)
        prices = np.maximum(0.0, prices + step * over)
        choices, low = pricer.cheapest(prices, until - clock())
        bound = max(bound, low - float(prices.sum()) * limit)
        found = _seen(pricer, choices, bound)
        if found.bytes <= limit:
            damping *= 0.7
            if best is None or found.seconds < best.seconds:
                best = found
        elif best is None:
            damping *= 1.5
    return best and Optimum(best.choices, best.seconds, best.bytes, bound)


def _seen(pricer: Pricer, choices: tuple[int, ...], bound: float) -> Optimum:
    return Optimum(
        choices, pricer.seconds(choices), float(pricer.curve(choices).max()), bound
    )
