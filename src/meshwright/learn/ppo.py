"""Training of a policy by proximal policy optimisation (Schulman, arXiv 1707.06347).

All agents act at once, and get one reward. The advantage of a proposal is its reward
relative to other proposals from the same inputs, so that no critic is needed. The ratio of
new and old probability is clipped for each agent: the ratio of all agents together would
exceed the limits at once. Agents may also act one after the other, each after it has seen
what those before it did; then the inputs differ between proposals. Letters in shapes: N
agents, A actions of each, S proposals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from meshwright.learn.arrays import (
    numbered_leaves,
    read_arrays,
    restored_tree,
    save_arrays,
)
from meshwright.learn.graphs import pad_rows
from meshwright.learn.layers import Params
from meshwright.learn.optimizers import adam_start, adam_step

_CLIP = 0.2
"""Largest relative change of a probability that a step is rewarded for."""

_ENTROPY = 1e-2

LogProbabilityFn = Callable[..., Any]
"""From parameters and input arrays to log probabilities of each agent's actions.

They are [N, A], or [S, N, A] if proposals have inputs of their own.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Policy:
    """A network of log probabilities, its parameters, and the state of Adam.

    log_p_fn: compiled once for each function, so that it must be one of a module.
    """

    log_p_fn: LogProbabilityFn
    params: Params
    state: Any

    @classmethod
    def new(cls, log_p_fn: LogProbabilityFn, params: Params) -> Policy:
        """A policy before its first step."""
        return cls(log_p_fn, params, adam_start(params))

    def log_probabilities(self, *inputs: Any) -> NDArray[np.float32]:
        """Log probabilities [N, A] or [S, N, A] of the actions of each agent."""
        return np.asarray(jax.jit(self.log_p_fn)(self.params, *inputs))

    def save(self, path: Path) -> None:
        """Write parameters and state to a file; an interruption leaves no partial file."""
        save_arrays(path, numbered_leaves("arr_", (self.params, self.state)))

    def restored(self, path: Path) -> Policy:
        """This network with the parameters and state that `save` wrote."""
        form = (self.params, self.state)
        params, state = restored_tree(form, read_arrays(path), "arr_", path)
        return replace(self, params=params, state=state)


@dataclass(frozen=True, slots=True, eq=False)
class Experience:
    """Several proposals for the same task, and their rewards.

    inputs: arrays for `log_p_fn`. actions: [S, n], numbers of actions below A, for the
        first n of N agents; the others are padding. rewards: [S].
    """

    inputs: tuple[Any, ...]
    actions: NDArray[np.int64]
    rewards: NDArray[np.float64]


@dataclass(slots=True, eq=False)
class PolicyTrainer:
    """A policy in training.

    rate: Adam's learning rate. epochs: steps on each experience.
    """

    policy: Policy
    rate: float = 1e-3
    epochs: int = 3

    @property
    def steps_done(self) -> int:
        """The number of Adam's steps so far, divided by the steps on one experience."""
        return int(self.policy.state[0]) // self.epochs

    def learn(self, experience: Experience) -> None:
        """Train the policy by a few clipped steps on an experience."""
        actions, rewards = experience.actions, experience.rewards
        spread = rewards.std()
        if spread == 0:
            return  # every proposal was as good as every other
        advantages = ((rewards - rewards.mean()) / (spread + 1e-3)).astype(np.float32)
        inputs = experience.inputs
        log_all = self.policy.log_probabilities(*inputs)
        agents = log_all.shape[-2]
        mask = pad_rows(np.ones(actions.shape[1], np.float32), agents)
        actions = pad_rows(actions.T.astype(np.int32), agents).T
        before = _of_actions(np, log_all, actions)
        data, rate = (actions, advantages, before, mask), np.float32(self.rate)
        policy, step = self.policy, _make_step(self.policy.log_p_fn)
        for _ in range(self.epochs):
            params, state = step(policy.params, policy.state, inputs, data, rate)
            policy = replace(policy, params=params, state=state)
        self.policy = policy


@cache
def _make_step(log_p_fn: LogProbabilityFn) -> Any:
    """Compile a training step on one experience; it returns parameters and state."""

    def loss(params: Params, inputs: tuple[Any, ...], data: tuple[Any, ...]) -> Any:
        actions, gains, before, mask = data
        log_all = log_p_fn(params, *inputs)
        log_p = _of_actions(jnp, log_all, actions)
        ratio = jnp.exp(log_p - before)
        clipped = jnp.clip(ratio, 1 - _CLIP, 1 + _CLIP)
        gain = jnp.minimum(ratio * gains[:, None], clipped * gains[:, None])
        gain = (gain * mask).sum(axis=1).mean()
        entropy = -(jnp.exp(log_all) * log_all).sum(axis=-1) * mask
        proposals = entropy.size // entropy.shape[-1]
        return -gain - _ENTROPY * entropy.sum() / proposals

    @jax.jit
    def step(
        params: Params, state: Any, inputs: Any, data: Any, rate: Any
    ) -> tuple[Params, Any]:
        return adam_step(params, state, jax.grad(loss)(params, inputs, data), rate)

    return step


def _of_actions(np_or_jnp: Any, log_all: Any, actions: Any) -> Any:
    """The log probabilities [S, N] of the actions [S, N] that were taken."""
    log_all = log_all if log_all.ndim == 3 else log_all[None]
    return np_or_jnp.take_along_axis(log_all, actions[..., None], axis=-1)[..., 0]
