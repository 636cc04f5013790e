"""The standing engines of `search/engines` on one cost made of a trial's figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from meshwright.search.loop.engine import Engine
from meshwright.search.trials.engines.engine import Batch, Proposals
from meshwright.search.trials.space.coding import Draws, Key

type CostFn = Callable[[Mapping[str, Any]], float]
"""A function from the figures of a trial to one cost to minimise."""

_REAL_LEVELS = 11
"""Values that a real number can take, evenly from its lowest to its highest."""


@dataclass(frozen=True, slots=True)
class Scalarised:
    """An engine such as `Annealing(seed=0)`, whose actions set one gene to one level.

    A state is a code; the search starts at a random one. Trials that failed or violate
    constraints have an infinite cost.
    cost_fn: makes one cost of the figures, such as minus a reward.
    """

    engine: Engine
    cost_fn: CostFn = field(repr=False)

    def propose(self, draws: Draws) -> Proposals:
        codes = draws.initial(max(1, len(draws.first)))
        trials = yield Batch(codes)
        known = {
            tuple(code): self._cost(trial)
            for code, trial in zip(codes.tolist(), trials, strict=True)
        }
        start = min(known, key=lambda key: known[key])
        exploration = self.engine.explore(_Levels(draws, start))
        cost: float | None = None
        while True:
            try:
                # The first send starts the generator and has to be None.
                _, state, _ = exploration.send(cost)  # pyright: ignore[reportArgumentType]
            except StopIteration:
                return
            if state not in known:
                known[state] = math.inf
                if not draws.space.broken(draws.space.decode(state)):
                    (trial,) = yield Batch(np.array([state]))
                    known[state] = self._cost(trial)
            cost = known[state]

    def _cost(self, trial: Any) -> float:
        if trial.reason or trial.violation > 0:
            return math.inf
        return float(self.cost_fn(trial.values))


@dataclass(frozen=True, slots=True)
class _Levels:
    """The problem of a standing engine: codes, and genes set to levels."""

    draws: Draws
    begin: Key

    def start(self) -> Key:
        return self.begin

    def actions(self, state: Key) -> Sequence[tuple[int, float]]:
        coding = self.draws.coding
        code = np.array(state)
        return [
            (gene, level)
            for gene in coding.used(code)
            for level in self._levels(gene)
            if level != state[gene]
        ]

    def _levels(self, gene: int) -> list[float]:
        coding = self.draws.coding
        units = np.full((_REAL_LEVELS, len(coding.genes)), 0.5)
        units[:, gene] = np.linspace(0, 1, _REAL_LEVELS)
        if coding.is_whole[gene]:
            return np.arange(coding.low[gene], coding.high[gene] + 1).tolist()
        return coding.from_units(units)[:, gene].tolist()

    def apply(self, state: Key, action: tuple[int, float]) -> Key:
        code = np.array(state)
        code[action[0]] = action[1]
        return tuple(self.draws.coding.clean(code).tolist())

    def cost(self, state: Key) -> float:
        raise NotImplementedError("the trials' loop gives the costs")

    def key(self, state: Key) -> Hashable:
        return state
