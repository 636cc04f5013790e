"""The training loop: epochs over examples, with a learning rate and a curve."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from meshwright.errors import LearnedError
from meshwright.learn.layers import Params


@dataclass(frozen=True, slots=True)
class TrainingSchedule:
    """The length of a training, its seed and its learning rate.

    warmup: share of the steps before the full learning rate.
    """

    seed: int
    epochs: int
    learning_rate: float
    warmup: float

    def __post_init__(self) -> None:
        if self.epochs < 1 or self.learning_rate <= 0:
            raise LearnedError(
                f"{self}: epochs must be at least 1, and learning_rate positive"
            )
        if not 0 <= self.warmup < 1:
            raise LearnedError(
                f"warmup is {self.warmup}: give a share from 0 to below 1"
            )

    def rate(self, share: float) -> float:
        """The learning rate after a share of all steps: linear warm-up, then a cosine."""
        if share < self.warmup:
            return self.learning_rate * share / self.warmup
        rest = (share - self.warmup) / (1 - self.warmup)
        return self.learning_rate * (1 + math.cos(math.pi * rest)) / 2

    def is_evaluated(self, epoch: int) -> bool:
        """Whether validation follows an epoch; it does ten times in the whole training."""
        is_due = (epoch + 1) % math.ceil(self.epochs / 10) == 0
        return is_due or epoch + 1 == self.epochs


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """One epoch of a training curve; `valid_score` is NaN in epochs without evaluation."""

    epoch: int
    loss: float
    valid_score: float


@dataclass(frozen=True, slots=True)
class ModelCheckpoints:
    """A file to which training saves its state every `every` epochs, and resumes from."""

    path: Path
    every: int = 10

    def is_due(self, epoch: int, epochs: int) -> bool:
        """Whether the state is saved after an epoch; it is after the last one."""
        return (epoch + 1) % self.every == 0 or epoch + 1 == epochs


@dataclass(frozen=True, slots=True, eq=False)
class TrainingState:
    """Parameters in training, the state of their optimizer, and the curve so far."""

    params: Params
    state: Any
    curve: tuple[CurvePoint, ...] = ()


def train_epochs[Example](
    progress: TrainingState,
    examples: Sequence[Example],
    schedule: TrainingSchedule,
    step_fn: Callable[..., tuple[Params, Any, float]],
    score_fn: Callable[[Params], float] = lambda params: math.nan,
) -> Iterator[TrainingState]:
    """Train; yield the progress after each epoch that `progress.curve` does not have yet.

    Each epoch draws its order and its random numbers from the seed and its own number, so
    that a training resumed from a saved state has the same result. Whoever leaves the loop
    over the epochs ends the training early.

    step_fn: takes parameters, the optimizer's state, an example, the number of the epoch,
        the learning rate and a random generator; returns parameters, state and loss.
    score_fn: the curve's `valid_score` of parameters.
    """
    for epoch in range(len(progress.curve), schedule.epochs):
        random, losses = np.random.default_rng([schedule.seed, epoch]), list[float]()
        params, state = progress.params, progress.state
        for place, number in enumerate(random.permutation(len(examples))):
            rate = schedule.rate((epoch + place / len(examples)) / schedule.epochs)
            params, state, loss = step_fn(
                params, state, examples[number], epoch, rate, random
            )
            losses.append(loss)
        score = score_fn(params) if schedule.is_evaluated(epoch) else math.nan
        point = CurvePoint(epoch, float(np.mean(losses)), score)
        progress = TrainingState(params, state, (*progress.curve, point))
        yield progress
