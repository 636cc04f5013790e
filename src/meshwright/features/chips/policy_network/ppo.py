"""Training of the policy by proximal policy optimisation (Schulman, arXiv 1707.06347).

All ops move at once, and the partition gets one reward. The advantage of a proposal is its
reward relative to other proposals for the same partition, so that no critic is needed. The
ratio of new and old probability is clipped for each op: the ratio of all ops together
would exceed the limits at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from meshwright.features.chips.policy_network.chip_policy import ChipPolicy
from meshwright.features.chips.policy_network.inputs import PolicyInputs
from meshwright.features.chips.policy_network.network import move_log_probabilities
from meshwright.features.tune.learned.network import Params

_CLIP = 0.2
"""Largest relative change of a probability that a step is rewarded for."""

_ENTROPY = 1e-2
_BETA_1, _BETA_2, _TINY = 0.9, 0.99, 1e-8
"""Decay of Adam's moments (Kingma and Ba, ICLR 2015)."""


@dataclass(frozen=True, slots=True, eq=False)
class Experience:
    """Several proposals for one partition of N ops, and their rewards.

    moves: [S, N] for S proposals; 0 is the chip before, 1 stays, 2 is the next chip.
    rewards: [S].
    """

    inputs: PolicyInputs
    moves: NDArray[np.int64]
    rewards: NDArray[np.float64]


@dataclass(slots=True, eq=False)
class PolicyTrainer:
    """A policy in training.

    rate: Adam's learning rate. epochs: steps on each experience.
    """

    policy: ChipPolicy
    rate: float = 1e-3
    epochs: int = 3

    @property
    def steps_done(self) -> int:
        """The number of Adam's steps so far, divided by the steps on one experience."""
        return int(self.policy.state[0]) // self.epochs

    def learn(self, experiences: Sequence[Experience]) -> None:
        """Train the policy by a few clipped steps on each experience."""
        for each in experiences:
            spread = each.rewards.std()
            if spread == 0:
                continue  # every proposal was as good as every other
            advantages = (each.rewards - each.rewards.mean()) / (spread + 1e-3)
            self._learn_one(each, advantages)

    def _learn_one(self, each: Experience, advantages: NDArray[np.float64]) -> None:
        graph, prior = each.inputs.padded()
        count, nodes = len(each.moves), len(prior)
        moves = np.ones((count, nodes), np.int32)
        moves[:, : each.moves.shape[1]] = each.moves
        log_all = self.policy.log_probabilities(graph, prior)
        before = np.take_along_axis(log_all[None], moves[..., None], axis=-1)[..., 0]
        rest = moves, advantages.astype(np.float32), before, np.float32(self.rate)
        policy, step = self.policy, _make_step()
        for _ in range(self.epochs):
            policy = ChipPolicy(*step(policy.params, policy.state, graph, prior, rest))
        self.policy = policy


@cache
def _make_step() -> Any:
    """Compile a training step on one experience; it returns parameters and state."""

    def loss(params: Params, graph: Any, prior: Any, data: tuple[Any, Any, Any]) -> Any:
        moves, gains, before = data
        log_all = move_log_probabilities(params, graph, prior)
        log_p = jnp.take_along_axis(log_all[None], moves[..., None], axis=-1)[..., 0]
        ratio = jnp.exp(log_p - before)
        clipped = jnp.clip(ratio, 1 - _CLIP, 1 + _CLIP)
        gain = jnp.minimum(ratio * gains[:, None], clipped * gains[:, None])
        gain = (gain * graph.node_mask).sum(axis=1).mean()
        entropy = -(jnp.exp(log_all) * log_all).sum(axis=-1) * graph.node_mask
        return -gain - _ENTROPY * entropy.sum()

    gradient = jax.grad(loss)

    @jax.jit
    def step(
        params: Params, state: Any, graph: Any, prior: Any, rest: Any
    ) -> tuple[Params, Any]:
        *data, rate = rest
        grads = gradient(params, graph, prior, tuple(data))
        norm = jnp.sqrt(sum((g**2).sum() for g in jax.tree.leaves(grads)))
        grads = jax.tree.map(lambda g: g / jnp.maximum(1.0, norm), grads)
        count, first, second = state
        count = count + 1
        first = _mix(_BETA_1, first, grads)
        second = _mix(_BETA_2, second, jax.tree.map(jnp.square, grads))

        def moved(p: Any, m: Any, v: Any) -> Any:
            m, v = m / (1 - _BETA_1**count), v / (1 - _BETA_2**count)
            return p - rate * m / (jnp.sqrt(v) + _TINY)

        return jax.tree.map(moved, params, first, second), (count, first, second)

    return step


def _mix(decay: float, old: Any, new: Any) -> Any:
    return jax.tree.map(lambda a, b: decay * a + (1 - decay) * b, old, new)
