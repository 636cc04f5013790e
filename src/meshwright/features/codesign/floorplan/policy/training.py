"""Training of a policy on several chips, which can be interrupted and go on.

Each round plays episodes of one chip and learns from them; chips take turns. A round
depends on the policy before it and on its number alone, so that a training that goes on
from its file ends as one that was never interrupted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from meshwright.errors import FloorplanError, LearnedError
from meshwright.features.codesign.floorplan.costs.evaluator import WEIGHTS
from meshwright.features.codesign.floorplan.netlist.frame import digests_of
from meshwright.features.codesign.floorplan.netlist.placement import ChipPlacement
from meshwright.features.codesign.floorplan.policy.collect import (
    CollectorPool,
    new_policy,
)
from meshwright.features.codesign.floorplan.policy.task import make_task
from meshwright.learn.arrays import numbered_leaves, read_arrays, save_arrays
from meshwright.learn.ppo import Policy, PolicyTrainer

FILE = "policy.npz"
"""Name of the file of a policy in its folder."""

EPOCHS = 2
"""Training steps on each batch."""

_RATE, _STEADY = 1e-2, 20
"""First learning rate of Adam, and rounds after which it falls."""

_SAVE_S = 10.0
"""Seconds between two writes of the file."""


def learning_rate(number: int) -> float:
    """Learning rate of a round: at first steady, then falling by the inverse root."""
    return _RATE / max(1.0, number / _STEADY) ** 0.5


class TrainingPoint(NamedTuple):
    """One round of training: episodes of one chip.

    steps: environment steps so far. reward: mean of the round's episodes, minus the proxy.
    random: mean reward of random episodes of this chip. best: largest reward of the round.
    """

    chip: str
    steps: int
    seconds: float
    reward: float
    best: float
    random: float


@dataclass(frozen=True, slots=True, eq=False)
class PlacerTraining:
    """A policy and the way of its training."""

    policy: Policy
    curve: tuple[TrainingPoint, ...]
    is_interrupted: bool = False

    def table(self, rows: int = 10) -> str:
        """The curve in a few rows: means over all rounds of a stretch."""
        lines = [f"{'steps':>9} {'seconds':>8} {'reward':>9} {'over random':>12}"]
        for part in np.array_split(np.arange(len(self.curve)), rows):
            if len(part):
                points = [self.curve[i] for i in part]
                reward = np.mean([p.reward for p in points])
                gain = np.mean([p.reward - p.random for p in points])
                last = points[-1]
                lines.append(
                    f"{last.steps:9} {last.seconds:8.1f} {reward:9.4f} {gain:+12.4f}"
                )
        return "\n".join(lines)


def read_floorplan_policy(path: Path) -> Policy:
    """The policy of a training: its folder, or the file in it."""
    file = path / FILE if path.is_dir() else path
    try:
        return new_policy(0).restored(file)
    except LearnedError as fault:
        raise FloorplanError(f"{path} is no policy for floorplans: {fault}") from None


def train(  # noqa: PLR0913  options of a training, by keyword
    chips: Mapping[str, ChipPlacement],
    *,
    steps: int,
    workers: int = 2,
    seed: int = 0,
    start: Policy | None = None,
    weights: Sequence[float] = WEIGHTS,
    folder: Path | None = None,
    progress: Callable[[TrainingPoint], None] | None = None,
) -> PlacerTraining:
    """A policy that was trained on chips for so many environment steps.

    chips: canvas and fixed blocks of each netlist by name; see `frame_of`.
    workers: threads that play episodes.
    start: policy to begin with, such as a trained one; by default an untrained one.
    folder: where the policy is saved, and from where a training goes on.
    """
    if steps < 1 or workers < 1 or not chips:
        raise FloorplanError(
            f"{steps} steps, {workers} workers and {len(chips)} netlists are wanted; "
            "allowed: 1 or more of each"
        )
    training = _Training(chips, (workers, seed), start, weights, folder)
    is_interrupted = False
    try:
        training.run(steps, progress or (lambda point: None))
    except KeyboardInterrupt:
        is_interrupted = True
    training.save()
    return PlacerTraining(
        training.trainer.policy, tuple(training.curve), is_interrupted
    )


class _Training:
    """A training under way."""

    def __init__(
        self,
        chips: Mapping[str, ChipPlacement],
        options: tuple[int, int],
        start: Policy | None,
        weights: Sequence[float],
        folder: Path | None,
    ) -> None:
        self.workers, self.seed = options
        self.tasks = {n: make_task(frame, weights) for n, frame in chips.items()}
        self.file = folder and folder / FILE
        self.trainer = PolicyTrainer(start or new_policy(self.seed), epochs=EPOCHS)
        self.curve: list[TrainingPoint] = []
        self.random: dict[str, float] = {}
        self.saved_at = time.monotonic()
        self.pools: dict[str, CollectorPool] = {}
        self.identity = {
            "netlists": {name: len(task.order) for name, task in self.tasks.items()},
            "workers": self.workers,
            "seed": self.seed,
            "weights": [float(w) for w in weights],
        }
        self.contents = {name: digests_of(frame) for name, frame in chips.items()}
        self.begin = time.monotonic()
        self._restore()

    def run(self, steps: int, progress: Callable[[TrainingPoint], None]) -> None:
        """Play and learn rounds until the steps are taken."""
        names = list(self.tasks)
        with ThreadPoolExecutor(self.workers) as pool:
            while (done := self.curve[-1].steps if self.curve else 0) < steps:
                number = len(self.curve)
                name = names[number % len(names)]
                collectors = self._collectors(name, pool)
                played = collectors.play(self.trainer.policy, (self.seed, number))
                self.trainer.rate = learning_rate(number)
                collectors.learn(self.trainer, played, (self.seed, number))
                point = TrainingPoint(
                    name,
                    done + played.num_steps,
                    round(time.monotonic() - self.begin, 3),
                    float(played.rewards.mean()),
                    float(played.rewards.max()),
                    self.random[name],
                )
                self.curve.append(point)
                progress(point)
                if time.monotonic() - self.saved_at > _SAVE_S:
                    self.save()

    def _collectors(self, name: str, pool: ThreadPoolExecutor) -> CollectorPool:
        """The collectors of a chip; the first time random episodes are played, too."""
        if name not in self.pools:
            self.pools[name] = CollectorPool(self.tasks[name], self.workers, pool)
        if name not in self.random:
            played = self.pools[name].play(new_policy(0), (self.seed,))
            self.random[name] = float(played.rewards.mean())
        return self.pools[name]

    def save(self) -> None:
        """Write the policy and the way of its training to one file."""
        if self.file is None:
            return
        policy = self.trainer.policy
        facts = {
            "identity": self.identity,
            "contents": self.contents,
            "random": self.random,
            "curve": [list(point) for point in self.curve],
        }
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            save_arrays(
                self.file,
                numbered_leaves("arr_", (policy.params, policy.state))
                | {"facts": np.array(json.dumps(facts))},
            )
        except OSError as fault:
            raise FloorplanError(
                f"cannot write {self.file}: {fault.strerror}"
            ) from None
        self.saved_at = time.monotonic()

    def _restore(self) -> None:
        """Go on from the file, if there is one of the same training."""
        if self.file is None or not self.file.exists():
            return
        policy = read_floorplan_policy(self.file)
        facts: dict[str, Any] = json.loads(str(read_arrays(self.file)["facts"]))
        for name, value in self.identity.items():
            if facts["identity"][name] != value:
                raise FloorplanError(
                    f"{self.file} is of a training with {name} "
                    f"{facts['identity'][name]}; this one has {value}: go on with the "
                    "same, or name another folder"
                )
        for name, there in facts.get("contents", {}).items():
            for what, here in self.contents[name].items():
                if there[what] != here:
                    raise FloorplanError(
                        f"{self.file} is of a training with another {what} of {name}: go "
                        "on with the same, or name another folder"
                    )
        self.trainer.policy = policy
        self.random = facts["random"]
        self.curve = [TrainingPoint(*point) for point in facts["curve"]]
        if self.curve:
            self.begin -= self.curve[-1].seconds
