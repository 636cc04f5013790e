"""Replay of experience: n-step returns, and a prioritised store.

T. Schaul, J. Quan, I. Antonoglou, D. Silver, "Prioritized Experience Replay", ICLR 2016:
the proportional variant, with sums recomputed for each batch, which is cheap enough here.

Letters: T steps of an episode, E episodes side by side, O numbers observed, U numbers of
an action, M transitions, B batch.
"""

from collections.abc import Mapping

import numpy as np

EXPONENT, CORRECTION = 0.6, 0.4
"""Alpha and beta of Schaul et al., table 3: how far priorities count, and how far a
batch makes up for it."""

FLOOR = 1e-3
"""Added to priorities, so that nothing is forgotten for good."""


def n_step_returns(reward: np.ndarray, steps: int, discount: float) -> np.ndarray:
    """Sums [T - steps + 1, E] of `steps` discounted rewards [T, E] from each time on.

    Times at which fewer rewards are left have no sum.
    """
    if steps > len(reward):
        raise ValueError(f"{steps} steps do not fit an episode of {len(reward)}")
    count = len(reward) - steps + 1
    return sum(discount**i * reward[i : i + count] for i in range(steps))


def transitions(
    seen: np.ndarray, done: np.ndarray, reward: np.ndarray, steps: int, discount: float
) -> dict[str, np.ndarray]:
    """What to keep [M, ...] of episodes: seen [T + 1, E, O], done [T, E, U] and reward.

    The last observation is an episode's, not the task's end: its value still counts.
    """
    returns = n_step_returns(np.asarray(reward), steps, discount)
    count = len(returns)
    kept = {
        "observation": np.asarray(seen)[:count],
        "action": np.asarray(done)[:count],
        "return": returns,
        "discount": np.full_like(returns, discount**steps),
        "next_observation": np.asarray(seen)[steps:],
    }
    return {name: np.concatenate(array) for name, array in kept.items()}


class Replay:
    """The latest transitions, at most `capacity`; the oldest make room."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a store of {capacity} transitions holds nothing")
        self.capacity = capacity
        self._kept: dict[str, np.ndarray] = {}
        self._priority = np.zeros(capacity)
        self._added = 0

    def __len__(self) -> int:
        return min(self._added, self.capacity)

    def add(self, transitions: Mapping[str, np.ndarray]) -> None:
        """Keep arrays [M, ...]; each transition counts as the most surprising so far."""
        count = len(next(iter(transitions.values())))
        if count > self.capacity:
            raise ValueError(f"{count} transitions do not fit into {self.capacity}")
        if not self._kept:
            self._kept = {
                name: np.zeros((self.capacity, *array.shape[1:]), array.dtype)
                for name, array in transitions.items()
            }
        places = (self._added + np.arange(count)) % self.capacity
        for name, array in transitions.items():
            self._kept[name][places] = array
        self._priority[places] = self._priority.max(initial=FLOOR)
        self._added += count

    def sample(
        self, batch: int, rng: np.random.Generator
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Places [B], and their transitions with a "weight" of at most 1.

        A place is drawn in proportion to its priority; weights undo a part of that.
        """
        if not self._added:
            raise ValueError("nothing to sample: add transitions first")
        sums = np.cumsum(self._priority[: len(self)] ** EXPONENT)
        drawn = np.searchsorted(sums, rng.random(batch) * sums[-1], side="right")
        places = np.minimum(drawn, len(self) - 1)  # rounding may reach the last sum
        chance = self._priority[places] ** EXPONENT / sums[-1]
        weight = (len(self) * chance) ** -CORRECTION
        taken = {name: array[places] for name, array in self._kept.items()}
        return places, taken | {"weight": (weight / weight.max()).astype(np.float32)}

    def prioritise(self, places: np.ndarray, surprise: np.ndarray) -> None:
        """Let transitions count by how far [B] the critic was off."""
        self._priority[places] = np.abs(surprise) + FLOOR
