"""The learned router: a network that gives each layer a multiplier, trained by its trials.

Letters in shapes: L layers, A multipliers, F features of a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from meshwright.learn.layers import apply, dense
from meshwright.learn.ppo import Experience, Policy, PolicyTrainer
from meshwright.search.arrays import Floats
from meshwright.search.trials import Batch, Trial
from meshwright.search.trials.engines.engine import Proposals
from meshwright.search.trials.space.coding import Draws

_HIDDEN = 16
_RATE = 0.02


def log_probabilities(params: Any, features: Any) -> Any:
    """Log probabilities [L, A] of multipliers from features [L, A, F]."""
    hidden = jnp.tanh(apply(params["hidden"], features))
    scores = apply(params["score"], hidden)[..., 0] + params["bias"]
    return jax.nn.log_softmax(scores)


@dataclass(frozen=True, slots=True)
class LearnedRouter:
    """An engine whose candidates a policy draws, trained by proximal policy optimisation.

    features: of each pair of a layer and a multiplier, as nested tuples [L, A, F].
    losses: what a loss of accuracy may be, one for each part of the search in turn.
    batch: routings of one step of training.

    The reward is the mean saving of power and area, less the loss beyond the limit, and the
    constraint's violation. Costs have to be loss, power and area, in this order.
    """

    features: tuple[tuple[tuple[float, ...], ...], ...]
    losses: tuple[float, ...] = (0.0, 0.005, 0.02)
    batch: int = 12

    def propose(self, draws: Draws) -> Proposals:
        first = draws.initial(max(len(draws.first), 1))
        yield Batch(first)
        seed = int(draws.rng.integers(2**31))
        trainers = [self._trainer(seed + i) for i in range(len(self.losses))]
        inputs = (np.asarray(self.features, np.float32),)
        while True:
            for limit, trainer in zip(self.losses, trainers, strict=True):
                log_p = trainer.policy.log_probabilities(*inputs).astype(np.float64)
                codes = np.array([_drawn(log_p, draws) for _ in range(self.batch)])
                trials = yield Batch(codes)
                rewards = np.array([reward(trial, limit) for trial in trials])
                actions = codes.astype(np.int64)
                trainer.learn(Experience(inputs, actions, rewards))

    def _trainer(self, seed: int) -> PolicyTrainer:
        keys = jax.random.split(jax.random.key(seed))
        shape = np.shape(self.features)
        params = {
            "hidden": dense(keys[0], shape[2], _HIDDEN),
            "score": dense(keys[1], _HIDDEN, 1),
            "bias": jnp.zeros(shape[:2]),
        }
        return PolicyTrainer(Policy.new(log_probabilities, params), _RATE)


def reward(trial: Trial, limit: float) -> float:
    """The saving of a routing, less 20 times its loss beyond the limit."""
    if trial.reason:
        return -1.0
    loss, power, area = trial.costs
    saving = 1 - (power + area) / 2
    return saving - 20 * max(0.0, loss - limit) - min(trial.violation, 1.0)


def _drawn(log_p: Floats, draws: Draws) -> Floats:
    """A multiplier for each layer, drawn by its probability."""
    sums = np.exp(log_p).cumsum(axis=1)
    random = draws.rng.random((len(sums), 1)) * sums[:, -1:]
    return (sums < random).sum(axis=1).astype(np.float64)


def pair_features(
    loads: Sequence[float],
    losses: Sequence[Sequence[float]],
    figures: Sequence[Sequence[float]],
) -> tuple[tuple[tuple[float, ...], ...], ...]:
    """Features [L, A, F] of each pair of a layer and a multiplier.

    They are the layer's share of the work, its place, its loss alone, and the multiplier's
    figures.

    losses: [L, A], of the network with only this layer on this multiplier.
    figures: [A, G], of each multiplier.
    """
    total = sum(loads)
    return tuple(
        tuple(
            (load / total, i / len(loads), 50 * losses[i][a], *map(float, figures[a]))
            for a in range(len(figures))
        )
        for i, load in enumerate(loads)
    )
