"""The fastest choices of an integer program that fit into memory, with a lower bound.

The memory limit couples all groups of ops at each of many moments of a step. Lagrangian
relaxation replaces it by a price per byte at each moment. At fixed prices the groups
are coupled only in pairs. The cost of the cheapest choices, minus the price of all
available memory, is then a lower bound for every plan that fits. The prices follow the
subgradient (Held and Karp, "The traveling-salesman problem and minimum spanning trees:
Part II", Math. Programming 1, 1971) with step lengths after Polyak (1969).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from meshwright.planner.solve.optimum import Choices, Optimum, best_within
from meshwright.planner.solve.pricer import Limits, Pricer
from meshwright.search.arrays import Floats
from meshwright.search.work import Meter

MOST_PRICE_STEPS = 24
"""Largest number of steps of the subgradient method; each solves the whole program."""

_LAST_PRICE_STEPS = 4
"""Largest number of subgradient steps if not even the smallest known plan fits."""

_FREE_SHARE = 0.6
"""Share of the time for the solve without a memory limit, if memory may be scarce."""

_AMPLE = 0.5
"""Share of memory below which the fastest known plan shows that memory is ample.

The optimum may take more; if it then does not fit, less time is left for smaller plans.
"""

_SHORTEST_S, _STEPS_LEFT = 0.3, 6
"""Least seconds of one solve with prices of memory, and divisor of the time left.

Each solve gets the time left, divided by this number.
"""

_HIGH_PRICE, _PEAK_SHARE = 30.0, 0.9
"""Price of all memory and share of the peak, to find the smallest plans.

The price is a multiple of the step time. It holds at moments at which more than this
share of the peak is in memory.
"""

_SMALLEST_SOLVES = 3
"""Number of solves for the smallest plan.

There are several, since a plan with a lower peak may have more in memory at other
moments.
"""


@dataclass(frozen=True, slots=True)
class SolveBudget:
    """Conditions that end `find_optimum`.

    rounds: largest number of the solver's rounds in each solve.
    until: reading of `meter`, in seconds, at which the search ends.
    stop_bound: seconds of a step; the search ends if its lower bound reaches them,
        since no slower plan is of interest.
    """

    rounds: int
    meter: Meter
    until: float
    stop_bound: float = math.inf

    @property
    def left_s(self) -> float:
        return self.until - self.meter.read()

    @property
    def next_solve_s(self) -> float:
        """Seconds for the next solve, one of several."""
        return max(_SHORTEST_S, self.left_s / _STEPS_LEFT)


def find_optimum(
    pricer: Pricer,
    limit: float | None,
    budget: SolveBudget,
    starts: Sequence[Choices] = (),
) -> Optimum:
    """The fastest choices found within `limit` bytes.

    If none fits, the choices are selected as in `best_within`.
    starts: known choices, from which the solves start.
    """
    free = np.zeros(pricer.live_counts.num_times)
    seconds = budget.left_s
    share = _FREE_SHARE if _may_be_scarce(pricer, limit, starts) else 1.0
    limits = Limits(share * seconds, budget.rounds, budget.stop_bound, budget.meter)
    choices, bound, messages = pricer.cheapest(free, limits, starts)
    first = _optimum(pricer, choices, bound)
    if limit is None or first.bytes <= limit:
        return first
    known = (choices, *starts)
    small = _smallest_plans(pricer, limit, budget, known, messages)
    found = [first, *(_optimum(pricer, plan, bound) for plan in (*small, *starts))]
    return _relax_limit(pricer, limit, budget, found, starts, messages)


def _may_be_scarce(
    pricer: Pricer, limit: float | None, starts: Sequence[Choices]
) -> bool:
    """Whether the memory limit may matter, judged by the fastest known plan."""
    if limit is None:
        return False
    fastest = min(starts, key=pricer.finite_seconds, default=None)
    return fastest is None or pricer.peak_bytes(fastest) > _AMPLE * limit


def _smallest_plans(
    pricer: Pricer,
    limit: float,
    budget: SolveBudget,
    starts: Sequence[Choices],
    messages: Floats | None,
) -> list[Choices]:
    """Choices that take little memory, found at very high prices per byte.

    starts: known choices, the fastest of them first.
    """
    found: list[Choices] = []
    curve = pricer.memory_curve(starts[0])
    fullest = curve > _PEAK_SHARE * curve.max()
    scale = _HIGH_PRICE * pricer.seconds(starts[0]) / limit
    while len(found) < _SMALLEST_SOLVES and not (found and budget.left_s <= 0):
        prices = scale * fullest / fullest.sum()
        limits = Limits(budget.next_solve_s, budget.rounds, math.inf, budget.meter)
        small, _, messages = pricer.cheapest(
            prices, limits, (*found, *starts), messages
        )
        found.append(small)
        curve = pricer.memory_curve(small)
        fuller = fullest | (curve > _PEAK_SHARE * curve.max())
        if curve.max() <= limit or np.all(fuller == fullest):
            break
        fullest = fuller
    return found


def _relax_limit(
    pricer: Pricer,
    limit: float,
    budget: SolveBudget,
    found: list[Optimum],
    starts: Sequence[Choices],
    messages: Floats | None,
) -> Optimum:
    """The best of the plans in `found` and those that the subgradient method finds.

    found: known plans; the first is the optimum without a memory limit.
    """
    first, best = found[0], best_within(found, limit)
    choices, bound = first.choices, first.bound
    prices, damping = np.zeros(pricer.live_counts.num_times), 1.0
    for _ in range(MOST_PRICE_STEPS if best.bytes <= limit else _LAST_PRICE_STEPS):
        if budget.left_s <= 0 or bound >= budget.stop_bound:
            break
        fits = best.bytes <= limit and best.seconds < math.inf
        target = best.seconds if fits else 1.1 * first.seconds
        excess = pricer.memory_curve(choices) - limit
        dual = pricer.seconds(choices) + float(prices @ excess)
        norm = float(excess @ excess)
        step = damping * max(target - dual, 0.01 * first.seconds) / max(norm, 1.0)
        prices = np.maximum(0.0, prices + step * excess)
        paid = float(prices.sum()) * limit
        limits = Limits(
            budget.next_solve_s, budget.rounds, budget.stop_bound + paid, budget.meter
        )
        choices, low, messages = pricer.cheapest(
            prices, limits, (choices, *starts), messages
        )
        bound = max(bound, low - paid)
        found.append(_optimum(pricer, choices, bound))
        best = best_within(found, limit)
        if found[-1].bytes <= limit:
            damping *= 0.7
        elif best.bytes > limit:
            damping *= 1.5
    return replace(best, bound=bound, unlimited=first.choices)


def _optimum(pricer: Pricer, choices: Choices, bound: float) -> Optimum:
    return Optimum(choices, pricer.seconds(choices), pricer.peak_bytes(choices), bound)
