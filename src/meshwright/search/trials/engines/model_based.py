"""Search by Gaussian processes: the candidates of largest expected improvement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.special import ndtr

from meshwright.search.arrays import Floats, Ints
from meshwright.search.trials.costs.pareto import front_of, merit_order
from meshwright.search.trials.engines.engine import (
    Batch,
    Population,
    Proposals,
    check_counts,
)
from meshwright.search.trials.engines.estimates.gaussian import (
    Posterior,
    features,
    fit,
    groups,
)
from meshwright.search.trials.engines.estimates.improvement import expected_improvement
from meshwright.search.trials.engines.nsga2 import child_of
from meshwright.search.trials.space.coding import Draws


@dataclass(frozen=True, slots=True)
class GaussianProcess:
    """One process per cost and one for violations; each batch has the best pool members.

    The pool is random candidates and children of the best. A candidate counts by its
    expected hypervolume improvement times its probability to be feasible. Within a batch
    each chosen candidate counts as tried, with its predicted costs.
    initial: random candidates before the first model. batch: candidates at once. pool:
        candidates from which a batch is chosen. most: trials that the models learn from,
        the best of them and the latest.
    """

    initial: int = 16
    batch: int = 4
    pool: int = 200
    most: int = 300

    def __post_init__(self) -> None:
        check_counts(self, initial=2, batch=1, pool=1, most=2)

    def propose(self, draws: Draws) -> Proposals:
        past = Population(len(draws.coding.genes), draws.num_costs)
        codes = draws.initial(self.initial)
        while True:
            trials = yield Batch(codes)
            past.add(codes, trials)
            done = np.flatnonzero(np.isfinite(past.violations))
            if len(done) < 2:
                codes = draws.several(self.batch, draws.random)
                continue
            codes = self._chosen(draws, past, done)

    def _chosen(self, draws: Draws, past: Population, done: Ints) -> Floats:
        """The next batch, after what was learned from the trials that ended."""
        done = self._learned_from(past, done)
        costs, violations = past.costs[done], past.violations[done]
        owners = groups(draws.coding)
        points = features(draws.coding, past.codes[done])
        models = [fit(points, column, owners) for column in _tamed(costs).T]
        limits = (
            fit(points, np.minimum(violations, 1), owners) if violations.any() else None
        )
        order = merit_order(past.costs, past.violations)
        best = past.codes[order[: max(4, len(past) // 4)]]
        pool = draws.pool(self.pool, partial(child_of, draws, best, 0.5))
        if len(pool) == 0:
            return draws.several(self.batch, draws.random)
        shown = features(draws.coding, pool)
        feasible = np.ones(len(pool)) if limits is None else _chance(limits, shown)
        front = _tamed(costs)[front_of(costs, violations)]
        reference = _tamed(costs).max(axis=0) + 0.1
        picked = self._picked(_predictions(models, shown), feasible, front, reference)
        return draws.give(pool[picked])

    def _picked(
        self,
        predictions: tuple[Floats, Floats],
        feasible: Floats,
        front: Floats,
        reference: Floats,
    ) -> list[int]:
        """The candidates of a batch, by number; each joins the front as predicted."""
        mean, deviation = predictions
        left, picked = list(range(len(mean))), list[int]()
        for _ in range(min(self.batch, len(mean))):
            gain = expected_improvement(mean[left], deviation[left], front, reference)
            # Where no gain is expected at all, the likeliest to be feasible is first.
            best = left.pop(int(np.argmax((gain + 1e-12) * feasible[left])))
            picked.append(best)
            front = np.concatenate([front, mean[best, None]])
            front = front[front_of(front, np.zeros(len(front)))]
        return picked

    def _learned_from(self, past: Population, done: Ints) -> Ints:
        """The trials to learn from: half of `most` by merit, half the latest."""
        if len(done) <= self.most:
            return done
        order = merit_order(past.costs[done], past.violations[done])[: self.most // 2]
        return np.unique(np.concatenate([done[order], done[-self.most // 2 :]]))


def _tamed(costs: Floats) -> Floats:
    """Costs [N, M] in standard deviations, with outliers drawn in beyond three."""
    centre = np.median(costs, axis=0)
    spread = np.median(np.abs(costs - centre), axis=0) * 1.5
    span = np.ptp(costs, axis=0)
    spread = np.where(spread > 0, spread, np.where(span > 0, span, 1))
    scaled = (costs - centre) / spread
    return np.where(scaled > 3, 3 + np.log1p(np.maximum(scaled - 3, 0)), scaled)


def _predictions(models: list[Posterior], points: Floats) -> tuple[Floats, Floats]:
    pairs = [model.predict(points) for model in models]
    return np.stack([p[0] for p in pairs], axis=1), np.stack(
        [p[1] for p in pairs], axis=1
    )


def _chance(limits: Posterior, points: Floats) -> Floats:
    """The probability [K] that a violation is below a hundredth of its limit."""
    mean, deviation = limits.predict(points)
    return ndtr((0.01 - mean) / deviation)
