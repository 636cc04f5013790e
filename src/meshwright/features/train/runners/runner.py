"""`Runner`: the interface through which the training loop uses devices.

States, batches and metrics are opaque handles to the loop: it gets them from a runner and
gives them back to it. So the devices may be those of this process (`local_runner.py`), of
all processes of `jax.distributed`, or of a slice of a cluster.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from meshwright.app.output.numbers import show_seconds
from meshwright.app.plan import Plan
from meshwright.errors import ClusterError
from meshwright.features.train.data.batches import Batches
from meshwright.features.train.recipes.recipe import PartitionPart
from meshwright.partitioner.tactics import Tactic

State = Any
"""Handle to a training state that stays on the devices."""

Batch = Any
"""Handle to a batch on the devices."""

Metrics = Any
"""Handle to the metrics of a step, which the devices may still be computing."""


@dataclass(frozen=True, slots=True, eq=False)
class RunnerStep:
    """A partitioned function of (state, batch), with its plan.

    call: the function, which returns handles at once. state_shapes: types of the state.
    """

    call: Callable[[State, Batch], Any]
    plan: Plan
    state_shapes: Any


@dataclass(frozen=True, slots=True)
class Profile:
    """The measured and the predicted time of one training step.

    measured_s, predicted_s: seconds; `predicted_s` is `None` if the plan has no figures.
    folder: folder with JAX's profile, for XProf or Perfetto, and with `predicted.json`,
        trace events of the predicted step.
    """

    step: int
    measured_s: float
    predicted_s: float | None
    folder: Path

    def __str__(self) -> str:
        text = f"profile of step {self.step}: {show_seconds(self.measured_s)} measured"
        if self.predicted_s is not None:
            text += f", {show_seconds(self.predicted_s)} predicted"
        return f"{text}; {self.folder}"


@dataclass(frozen=True, slots=True, eq=False)
class RestoredRun:
    """A training run restored from its last checkpoint.

    step: number of steps done, which is also the number of batches that were used.
    plan: the plan of the saved run, as JSON. position: the saved position in the data.
    """

    state: State
    step: int
    plan: str | None
    position: Any


class Runner(Protocol):
    """The devices of a training run, as the operations that the training loop needs."""

    @property
    def num_devices(self) -> int:
        """The number of devices of the run, over all processes."""
        ...

    @property
    def is_first(self) -> bool:
        """Whether this process is the one that prints and writes metrics."""
        ...

    def agree_to_end(self, number: int, asked: bool) -> bool:
        """Whether the run ends after step `number`; all processes get the same answer.

        asked: whether this process was asked to end the run, for example by Ctrl-C.
        """
        ...

    def partition(
        self,
        fn: Callable[..., Any],
        shapes: tuple[Any, Any],
        how: PartitionPart,
        tactics: tuple[Tactic, ...] | None,
    ) -> RunnerStep:
        """Partition a function of (state, batch); the state is donated.

        shapes: types of state and batch. how: the recipe's mesh and search options.
        tactics: `None` to let a search find them.
        """
        ...

    def partition_like(
        self, fn: Callable[..., Any], step: RunnerStep
    ) -> Callable[..., Any]:
        """Partition another function of (state, batch), with `step`'s input shardings."""
        ...

    def init(self, step: RunnerStep, init_fn: Callable[..., Any], seed: int) -> State:
        """The first state, `init_fn(key)`, created on the devices.

        seed: seed of the key.
        """
        ...

    def put_ahead(
        self, step: RunnerStep, batches: Batches, start: int
    ) -> Iterator[Batch]:
        """The batches from number `start` on, placed on the devices.

        Batches are read ahead in the background.
        """
        ...

    def profile(
        self, step: RunnerStep, number: int, args: tuple[State, Batch], folder: Path
    ) -> tuple[Any, Profile]:
        """Run one step under a profiler; return its results and the profile.

        folder: the folder into which the profile is written.
        """
        ...

    def values(self, rows: Sequence[Metrics]) -> list[dict[str, float]]:
        """The metrics of several steps as numbers; this waits for the steps to finish."""
        ...

    def save(
        self,
        number: int,
        state: State,
        step: RunnerStep,
        position: Any,
        metrics: Mapping[str, float],
    ) -> None:
        """Save the state after `number` steps as a checkpoint, in the background."""
        ...

    def restore(self, step: RunnerStep) -> RestoredRun | None:
        """The state of the last checkpoint, sharded as `step` needs it.

        `None` if there is no checkpoint.
        """
        ...

    def recover(self, error: ClusterError) -> bool:
        """Whether the run can continue from its last checkpoint after this error.

        It waits until there are devices again, which may be fewer or more than before.
        """
        ...

    def close(self) -> None:
        """Wait until all checkpoints are complete, and release the resources."""
        ...
