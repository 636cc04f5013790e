"""Evolution and descent side by side: children of a population, and neighbours of its best.

Reference: Moscato, "On Evolution, Search, Optimization, Genetic Algorithms and Martial
Arts: Towards Memetic Algorithms", 1989.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations

import numpy as np

from meshwright.search.arrays import Floats
from meshwright.search.trials.costs.pareto import merit_order
from meshwright.search.trials.engines.engine import (
    Batch,
    Population,
    Proposals,
    check_counts,
)
from meshwright.search.trials.engines.nsga2 import child_of
from meshwright.search.trials.space.coding import Draws, Key

_SHARES = (0.02, 0.1)
"""Steps of a real number, as shares of its range."""


@dataclass(frozen=True, slots=True)
class Memetic:
    """Half of each batch are children as of NSGA-II, half are neighbours of the best.

    A neighbour has one gene at another option, or one or two levels away; or one gene a
    level up and another a level down, as where constraints leave room for either alone.
    Neighbours are those of the first by rank and crowding distance, in random order; as
    all were tried, those of the second, and so on. A batch's best joins the population.
    population: codes that live on. children, neighbours: at once. crossing: share of
        children with two parents.
    """

    population: int = 40
    children: int = 8
    neighbours: int = 8
    crossing: float = 0.9

    def __post_init__(self) -> None:
        check_counts(self, population=2, children=1, neighbours=1)

    def propose(self, draws: Draws) -> Proposals:
        living = Population(len(draws.coding.genes), draws.num_costs)
        around = _Neighbours(draws)
        codes = draws.initial(self.population)
        living.add(codes, (yield Batch(codes)))
        while True:
            living.keep(merit_order(living.costs, living.violations)[: self.population])
            child = partial(child_of, draws, living.codes, self.crossing)
            near = partial(around.next, living.codes, child)
            born = draws.several(self.children, child)
            codes = np.concatenate([born, draws.several(self.neighbours, near)])
            trials = yield Batch(codes)
            living.add(born, trials[: self.children])
            tried = Population(codes.shape[1], draws.num_costs)
            tried.add(codes[self.children :], trials[self.children :])
            # All of them would soon be the whole population.
            first = merit_order(tried.costs, tried.violations)[:1]
            living.add(tried.codes[first], [trials[self.children + i] for i in first])


@dataclass(slots=True)
class _Neighbours:
    """The neighbours of codes that were not given yet."""

    draws: Draws
    left: dict[Key, Iterator[Floats]] = field(
        default_factory=dict[Key, Iterator[Floats]]
    )

    def next(self, living: Floats, child_fn: partial[Floats]) -> Floats:
        """The next neighbour of the first code that has one left, or a child."""
        for code in living:
            key = tuple(code.tolist())
            if key not in self.left:
                self.left[key] = iter(self._shuffled(code))
            found = next(self.left[key], None)
            if found is not None:
                return found
        return child_fn()

    def _shuffled(self, code: Floats) -> list[Floats]:
        found = list(neighbours(self.draws, code))
        new = [each for each in found if tuple(each.tolist()) not in self.draws.seen]
        return [new[i] for i in self.draws.rng.permutation(len(new))]


def neighbours(draws: Draws, code: Floats) -> Iterator[Floats]:
    """Codes [G] with one gene changed, or one up and one down."""
    coding = draws.coding
    used = [gene for gene in coding.used(code) if coding.high[gene] > coding.low[gene]]
    for gene in used:
        for value in _near(draws, code, gene):
            yield _set(draws, code, {gene: value})
    levels = [gene for gene in used if coding.is_whole[gene]]
    levels = [gene for gene in levels if not coding.is_choice[gene]]
    for up, down in permutations(levels, 2):
        if code[up] < coding.high[up] and code[down] > coding.low[down]:
            yield _set(draws, code, {up: code[up] + 1, down: code[down] - 1})


def _near(draws: Draws, code: Floats, gene: int) -> Iterator[float]:
    """Other values of a gene, near the code's if it has an order."""
    coding, now = draws.coding, code[gene]
    low, high = coding.low[gene], coding.high[gene]
    if coding.is_choice[gene]:
        yield from (v for v in np.arange(low, high + 1) if v != now)
    elif coding.is_whole[gene]:
        yield from (now + step for step in (-2, -1, 1, 2) if low <= now + step <= high)
    else:
        for share in (s * sign for s in _SHARES for sign in (-1, 1)):
            units = coding.units(code)
            units[gene] += share
            yield float(coding.from_units(units)[gene])


def _set(draws: Draws, code: Floats, values: dict[int, float]) -> Floats:
    changed = code.copy()
    for gene, value in values.items():
        changed[gene] = value
    return draws.coding.clean(changed)
