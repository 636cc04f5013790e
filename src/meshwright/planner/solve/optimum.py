"""The cheapest choices that fit into memory, and how far from the best they can be.

Memory binds all groups at once, at each of many moments. It gets a price at each moment
(Lagrange multipliers): with the prices fixed the groups are bound only in pairs, and what
the cheapest choices then cost, less the price of the memory there is, bounds every plan
that fits from below. The prices follow the subgradient (Held and Karp, 1971; steps after
Polyak, 1969).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from meshwright.errors import AssignmentError
from meshwright.planner.prices.integer_program import Link, Model, Table
from meshwright.planner.prices.peak_times import Lives
from meshwright.search.assignment import Assignment, Solution, SolveOptions, solve

MOST_ROUNDS = 24
"""Times that prices of memory are changed; each solves the whole program again."""

GOOD_ENOUGH = 0.003
"""Share of a step's time that a plan is not worth waiting for."""

_FOR_FIRST = 0.6
"""Share of the time for the program without a limit of memory, where there is one."""

_PLENTY = 0.5
"""Share of the memory up to which the fastest plan known says that there is enough. What is
better may take more; where that does not fit, less time is left for what does."""

_SHORTEST_S, _ROUNDS_LEFT = 0.3, 6
"""Seconds that a program with prices gets at least, and the share of what is left."""

_DEAR, _FULL = 30.0, 0.9
"""Steps' worth of time for all the memory there is, and the share of the fullest moment
from which on moments count, to find out what fits at all."""

_DEAR_ROUNDS = 3
"""Times that this is asked, since what has become small at these moments may be large at
others."""

_LAST_ROUNDS = 4
"""The same as MOST_ROUNDS where that did not fit."""

ABOUT = 1.01
"""Times the memory of the smallest plan that one may take to count as no larger."""

_PATIENCE = 3
"""Times that a program which has found nothing yet gets three times as long."""

type Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Optimum:
    """Choices of all variables of a model.

    seconds: of a step by the model. bytes: at its fullest moment. bound: no choices that
    fit into memory take less. unlimited: the best choices whatever memory they take,
    where those do not fit.
    """

    choices: tuple[int, ...]
    seconds: float
    bytes: float
    bound: float
    unlimited: tuple[int, ...] | None = None

    @property
    def gap(self) -> float:
        """Share of its seconds that a better plan could save at most."""
        return max(0.0, 1 - self.bound / self.seconds) if self.seconds else 0.0


class Sized(Protocol):
    """Anything that takes time and memory."""

    @property
    def seconds(self) -> float: ...
    @property
    def bytes(self) -> float: ...


def best_within[S: Sized](plans: Sequence[S], limit: float) -> S:
    """The fastest that fits; if none does, the fastest of those about the smallest."""
    smallest = min(plan.bytes for plan in plans)
    most = limit if smallest <= limit else ABOUT * smallest
    return min((p for p in plans if p.bytes <= most), key=lambda p: p.seconds)


class Cheapest(NamedTuple):
    """What the solver found at some prices of memory, and what it told on the way."""

    choices: tuple[int, ...]
    bound: float
    told: Vector | None


@dataclass(frozen=True, slots=True)
class Pricer:
    """Seconds and bytes of choices of one model; of a model only what that takes.

    costs, links, held: as in `Model`. gap: share of a step's time that a better solution
    of a program is not waited for.
    """

    costs: tuple[Table, ...]
    links: tuple[Link, ...]
    held: tuple[tuple[Table, ...], ...]
    lives: Lives
    seed: int = 0
    gap: float = GOOD_ENOUGH

    @classmethod
    def of(cls, model: Model, lives: Lives, seed: int = 0) -> Pricer:
        """Of a model."""
        return cls(model.costs, model.links, model.held, lives, seed)

    def seconds(self, choices: Sequence[int]) -> float:
        """Of a step."""
        pairs = (e.seconds[choices[e.first], choices[e.second]] for e in self.links)
        return self._alone(choices) + float(sum(pairs))

    def curve(self, choices: Sequence[int]) -> Vector:
        """Bytes at each moment watched, [T]."""
        total = np.zeros(self.lives.num_times)
        for (group, result), counts in self.lives.counts.items():
            total += counts * self.held[group][result][choices[group]]
        for link in self.links:
            share = link.extra[choices[link.first], choices[link.second]]
            if share and link.copy in self.lives.copies:
                total += share * link.num_bytes * self.lives.copies[link.copy]
        return total

    def roughly(self, choices: Sequence[int]) -> float:
        """Seconds of a step, with nothing for pairs that the model has no price for."""
        pairs = (e.seconds[choices[e.first], choices[e.second]] for e in self.links)
        return self._alone(choices) + float(sum(s for s in pairs if s < np.inf))

    def _alone(self, choices: Sequence[int]) -> float:
        return float(sum(c[x] for c, x in zip(self.costs, choices, strict=True)))

    def cheapest(
        self,
        prices: Vector,
        seconds: float,
        turns: int,
        worthless: float = math.inf,
        starts: Sequence[tuple[int, ...]] = (),
        told: Vector | None = None,
    ) -> Cheapest:
        """The choices that cost least when memory has a price, and a lower bound.

        seconds: to look for them, or until there are any. turns: of the solver, at most.
        worthless: a bound that ends this. starts: choices that are known. told: what the
        solver told at other prices.
        """
        problem = self.program(prices)
        start = min(starts, key=lambda s: problem.cost(np.array(s)), default=None)
        found = _solve(
            problem,
            seconds,
            SolveOptions(self.gap, worthless, start, turns, told),
            self.seed,
        )
        choices = tuple(int(x) for x in found.choices)
        return Cheapest(choices, float(found.bound), found.messages)

    def program(self, prices: Vector) -> Assignment:
        """The integer program when memory has a price at each moment."""
        paid = {key: float(prices @ row) for key, row in self.lives.counts.items()}
        more = {key: float(prices @ row) for key, row in self.lives.copies.items()}
        costs = [
            c
            + sum(
                (p * h for r, h in enumerate(held) if (p := paid.get((g, r), 0.0))), 0.0
            )
            for g, (c, held) in enumerate(zip(self.costs, self.held, strict=False))
        ]
        costs += self.costs[len(costs) :]
        edges = [
            (e.first, e.second, _with_price(e, more.get(e.copy, 0.0)))
            for e in self.links
        ]
        return Assignment.of(costs, edges)  # pyright: ignore[reportArgumentType]


def _solve(
    problem: Assignment, seconds: float, options: SolveOptions, seed: int
) -> Solution:
    """The best choices of so many seconds, or the first ones after them."""
    for _ in range(_PATIENCE):
        try:
            return solve(problem, seconds, seed, options=options)
        except AssignmentError:  # it has one, that in which nothing is cut
            seconds *= 3
            # The bound may have been reached before any solution was found.
            options = replace(options, stop_bound=math.inf)
    return solve(problem, seconds, seed, options=options)


def _with_price(link: Link, price: float) -> Table:
    """Seconds, and what copies cost where a byte of them has a price."""
    if not price:
        return link.seconds
    return link.seconds + price * link.num_bytes * link.extra


def find_optimum(  # noqa: PLR0913  what is known, and when to stop
    pricer: Pricer,
    limit: float | None,
    turns: int,
    clock: Callable[[], float],
    until: float,
    starts: Sequence[tuple[int, ...]] = (),
    worthless: float = math.inf,
) -> Optimum:
    """The cheapest choices found that fit into `limit` bytes, as `best_within` has it.

    turns: of the solver, for each program. clock: seconds; the search ends when it reads
    `until`, however many there were. starts: choices that are known.
    worthless: seconds of a step; a bound that reaches them ends the search.
    """
    none = np.zeros(pricer.lives.num_times)
    seconds = until - clock()
    share = _FOR_FIRST if _is_scarce(pricer, limit, starts) else 1.0
    choices, bound, told = pricer.cheapest(
        none, share * seconds, turns, worthless, starts
    )
    first = _seen(pricer, choices, bound)
    if limit is None or first.bytes <= limit:
        return first
    small = _small_ones(pricer, limit, turns, (clock, until), (choices, *starts), told)
    plans = (*small, *starts)
    seen = [first, *(_seen(pricer, plan, bound) for plan in plans)]
    best = best_within(seen, limit)
    least, prices, damping = first.seconds, none, 1.0
    for _ in range(MOST_ROUNDS if best.bytes <= limit else _LAST_ROUNDS):
        if clock() >= until or bound >= worthless:
            break
        over = pricer.curve(choices) - limit
        fits = best.bytes <= limit and best.seconds < math.inf
        target = best.seconds if fits else 1.1 * least
        dual = pricer.seconds(choices) + float(prices @ over)
        norm = float(over @ over)
        step = damping * max(target - dual, 0.01 * least) / max(norm, 1.0)
        prices = np.maximum(0.0, prices + step * over)
        paid = float(prices.sum()) * limit
        share = max(_SHORTEST_S, (until - clock()) / _ROUNDS_LEFT)
        known = (choices, *starts)
        choices, low, told = pricer.cheapest(
            prices, share, turns, worthless + paid, known, told
        )
        bound = max(bound, low - paid)
        found = _seen(pricer, choices, bound)
        seen.append(found)
        best = best_within(seen, limit)
        if found.bytes <= limit:
            damping *= 0.7
        elif best.bytes > limit:
            damping *= 1.5
    return replace(best, bound=bound, unlimited=first.choices)


def _is_scarce(
    pricer: Pricer, limit: float | None, starts: Sequence[tuple[int, ...]]
) -> bool:
    """Whether the fastest plan that is known says that memory may bind."""
    if limit is None:
        return False
    fastest = min(starts, key=pricer.roughly, default=None)
    return fastest is None or float(pricer.curve(fastest).max()) > _PLENTY * limit


def _small_ones(
    pricer: Pricer,
    limit: float,
    turns: int,
    time: tuple[Callable[[], float], float],
    starts: Sequence[tuple[int, ...]],
    told: Vector | None,
) -> list[tuple[int, ...]]:
    """What there is when bytes cost far more than seconds; hardly anything is smaller.

    time: clock and end. starts: the first of them is the fastest.
    """
    found: list[tuple[int, ...]] = []
    curve, (clock, until) = pricer.curve(starts[0]), time
    fullest = curve > _FULL * curve.max()
    scale = _DEAR * pricer.seconds(starts[0]) / limit
    while len(found) < _DEAR_ROUNDS and not (found and clock() >= until):
        dear = scale * fullest / fullest.sum()
        share = max(_SHORTEST_S, (until - clock()) / _ROUNDS_LEFT)
        known = (*found, *starts)
        small, _, told = pricer.cheapest(dear, share, turns, starts=known, told=told)
        found.append(small)
        curve = pricer.curve(small)
        more = fullest | (curve > _FULL * curve.max())
        if curve.max() <= limit or np.all(more == fullest):
            break
        fullest = more
    return found


def _seen(pricer: Pricer, choices: tuple[int, ...], bound: float) -> Optimum:
    return Optimum(
        choices, pricer.seconds(choices), float(pricer.curve(choices).max()), bound
    )
