"""Collectors: threads that play episodes of a policy, and what it learns from them."""

from __future__ import annotations

from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.features.codesign.floorplan.policy.episodes import (
    NUM_MAPS,
    Episodes,
)
from meshwright.features.codesign.floorplan.policy.inputs import (
    ChipArrays,
    chip_arrays,
    side_of,
)
from meshwright.features.codesign.floorplan.policy.network import (
    cell_log_probabilities,
    init_network,
    log_probabilities,
    step_arrays,
)
from meshwright.features.codesign.floorplan.policy.task import MacroTask
from meshwright.learn.layers import Params
from meshwright.learn.ppo import Experience, Policy, PolicyTrainer
from meshwright.search.arrays import Floats, Ints

EPISODES = 8
"""Episodes that a collector plays side by side."""

_BATCHES = (32, 8)
"""Steps of each episode in one training step; each number is compiled once."""


def new_policy(seed: int) -> Policy:
    """An untrained policy: all free cells are equally probable."""
    return Policy.new(log_probabilities, init_network(jax.random.key(seed)))


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeRound:
    """Episodes of one task that were played with one policy.

    maps: what was seen of each cell in each step, [S, M, G, G, 3].
    cells: the actions, cells of the padded grid, [S, M]. rewards: [S].
    best: placement of the largest reward; `None` if every episode was stuck.
    """

    maps: NDArray[np.float32]
    cells: Ints
    rewards: Floats
    best: ChipPlacement | None

    @property
    def num_steps(self) -> int:
        """Environment steps of all episodes."""
        return self.cells.size


class Collector:
    """One player of episodes of one task; its calls must not overlap."""

    def __init__(self, task: MacroTask, chip: ChipArrays, count: int) -> None:
        self.task, self._chip, self._side = task, chip, side_of(task)
        self._episodes = Episodes(task, count)

    def play(self, params: Params, seed: Any, is_greedy: bool = False) -> EpisodeRound:
        """Play all episodes to their end.

        is_greedy: take the most probable cell in each step, in place of random ones.
        """
        episodes, rng, side = self._episodes, np.random.default_rng(seed), self._side
        count, num_steps = len(episodes.x), len(self.task.order)
        episodes.reset()
        arrays = _prepare(params, self._chip, np.arange(len(self._chip.order)))
        maps = np.zeros((count, num_steps, side, side, NUM_MAPS), np.float32)
        actions = np.zeros((count, num_steps), np.int64)
        while not episodes.is_over:
            step = episodes.step
            maps[:, step] = episodes.maps(side)
            draws = rng.random(count).astype(np.float32)
            draws = np.full_like(draws, -1) if is_greedy else draws
            chosen = np.asarray(_choose(params, arrays, step, maps[:, step], draws))
            chosen = np.where(episodes.is_stuck, 0, chosen)
            actions[:, step] = chosen
            episodes.act(chosen // side * self.task.columns + chosen % side)
        rewards = episodes.rewards()
        best = int(rewards.argmax())
        is_placed = not episodes.is_stuck[best]
        placement = episodes.placement(best) if is_placed else None
        return EpisodeRound(maps, actions, rewards, placement)


@jax.jit
def _prepare(params: Params, chip: ChipArrays, steps: Any) -> tuple[Any, Any]:
    return step_arrays(params, chip, steps)


@jax.jit
def _choose(params: Params, arrays: Any, step: Any, maps: Any, draws: Any) -> Any:
    """A cell for each episode, [S]: by its draw, or the most probable below 0."""
    now = jax.tree.map(lambda each: each[step][None], arrays)
    log_p = cell_log_probabilities(params, now, maps[:, None])[:, 0]
    sums = jnp.cumsum(jnp.exp(log_p), axis=1)
    free = maps[..., 0].reshape(log_p.shape) > 0
    # Sums that are computed in parallel need not grow from cell to cell.
    reached = free & (sums > draws[:, None] * sums[:, -1:])
    best = jnp.where(free, log_p, -jnp.inf).argmax(axis=1)
    is_drawn = (draws >= 0) & reached.any(axis=1)
    return jnp.where(is_drawn, reached.argmax(axis=1), best)


class CollectorPool:
    """Collectors of one task that play side by side, in a thread each."""

    def __init__(self, task: MacroTask, workers: int, pool: Executor) -> None:
        self.task, self._pool = task, pool
        self.chip = chip_arrays(task)
        self._collectors = [
            Collector(task, self.chip, EPISODES) for _ in range(workers)
        ]

    def play(self, policy: Policy, seed: tuple[int, ...]) -> EpisodeRound:
        """Episodes of all collectors with one policy."""
        params, chip = policy.params, range(len(self._collectors))
        rounds = list(
            self._pool.map(lambda i: self._collectors[i].play(params, [*seed, i]), chip)
        )
        best = max(rounds, key=lambda each: each.rewards.max())
        return EpisodeRound(
            np.concatenate([each.maps for each in rounds]),
            np.concatenate([each.cells for each in rounds]),
            np.concatenate([each.rewards for each in rounds]),
            best.best,
        )

    def learn(
        self, trainer: PolicyTrainer, played: EpisodeRound, seed: tuple[int, ...]
    ) -> None:
        """Train on a round: on batches of its steps, in random order."""
        steps, rewards = played.cells.shape[1], _bounded(played.rewards)
        size = next((n for n in _BATCHES if n <= steps), _BATCHES[-1])
        order = np.random.default_rng(seed).permutation(steps)
        batches = -(-steps // size)
        for batch in np.resize(order, (batches, size)):  # which begins anew at the end
            inputs = (self.chip, batch, played.maps[:, batch])
            trainer.learn(Experience(inputs, played.cells[:, batch], rewards))


def _bounded(rewards: Floats) -> Floats:
    """The rewards, the low ones raised so far that they do not hide the others.

    A stuck episode has a reward far below all others.
    """
    middle = float(np.median(rewards))
    return np.maximum(rewards, 2 * middle - float(rewards.max()))
