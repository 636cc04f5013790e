"""`Runner`: the devices of a run, as the loop sees them.

The loop holds states, batches and metrics only as handles, which it gets from a runner and
gives back to it. So the devices may be those of this process (`local_runner.py`), of all
processes of `jax.distributed`, or those of a slice of a cluster.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from meshwright.app.output.numbers import show_seconds
from meshwright.app.plan import Plan
from meshwright.app.train.data.batches import Batches
from meshwright.app.train.recipes.recipe import PartitionPart
from meshwright.errors import ClusterError
from meshwright.partitioner.tactics import Tactic

State = Any
"""Handle of a state that stays on the devices."""

Batch = Any
"""Handle of a batch on the devices."""

Metrics = Any
"""Handle of the metrics of a step, which may not be computed yet."""


@dataclass(frozen=True, slots=True, eq=False)
class RunnerStep:
    """A partitioned function of (state, batch), and the plan that it executes.

    call: returns handles at once. state_shapes: types of its state.
    """

    call: Callable[[State, Batch], Any]
    plan: Plan
    state_shapes: Any


@dataclass(frozen=True, slots=True)
class Profile:
    """A measured and a predicted step.

    folder: JAX's profile, for XProf or Perfetto, and `predicted.json`, trace events of
        the predicted step. predicted_s: `None` if the plan has no figures.
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
    """A restored state, and where the run was.

    step: number of steps done, which is also the number of batches that were used.
    plan: JSON of the plan that ran. position: as it was saved.
    """

    state: State
    step: int
    plan: str | None
    position: Any


class Runner(Protocol):
    """The devices of a run: the operations that the loop needs."""

    @property
    def num_devices(self) -> int:
        """The number of devices."""
        ...

    @property
    def is_first(self) -> bool:
        """Whether this process prints and writes metrics."""
        ...

    def agree_to_end(self, number: int, asked: bool) -> bool:
        """Whether the run ends after step `number`, for all processes alike.

        asked: whether this process was asked to, as by Ctrl-C.
        """
        ...

    def partition(
        self,
        fn: Callable[..., Any],
        shapes: tuple[Any, Any],
        how: PartitionPart,
        tactics: tuple[Tactic, ...] | None,
    ) -> RunnerStep:
        """A function of (state, batch), partitioned; the first argument is donated.

        shapes: types of state and batch. tactics: `None` for a search.
        """
        ...

    def partition_like(
        self, fn: Callable[..., Any], step: RunnerStep
    ) -> Callable[..., Any]:
        """Another function of (state, batch), which takes them as `step` cuts them."""
        ...

    def init(self, step: RunnerStep, init_fn: Callable[..., Any], seed: int) -> State:
        """The first state `init_fn(key)`, on the devices."""
        ...

    def put_ahead(
        self, step: RunnerStep, batches: Batches, start: int
    ) -> Iterator[Batch]:
        """The batches from number `start` on, on the devices; read in the background."""
        ...

    def profile(
        self, step: RunnerStep, number: int, args: tuple[State, Batch], folder: Path
    ) -> tuple[Any, Profile]:
        """The results of one step, and its profile, written into a folder."""
        ...

    def values(self, rows: Sequence[Metrics]) -> list[dict[str, float]]:
        """The metrics of several steps as numbers; waits for these steps."""
        ...

    def save(
        self,
        number: int,
        state: State,
        step: RunnerStep,
        position: Any,
        metrics: Mapping[str, float],
    ) -> None:
        """Save a state after `number` steps, in the background."""
        ...

    def restore(self, step: RunnerStep) -> RestoredRun | None:
        """The last saved state, cut as `step` needs it; `None` if there is none."""
        ...

    def recover(self, error: ClusterError) -> bool:
        """Whether the run can go on from its last checkpoint after an error.

        Waits until there are devices again, which may be fewer or more.
        """
        ...

    def close(self) -> None:
        """Wait until all that was saved is committed, and free what was opened."""
        ...
