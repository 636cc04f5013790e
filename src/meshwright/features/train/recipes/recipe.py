"""The recipe of a training run: one frozen dataclass for each table of its TOML file.

The fields of a dataclass are the entries of the table, with the same names and defaults.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from meshwright.errors import RecipeError
from meshwright.features.checkpoint.retention import MODES

EVALUATION_LOSS = "evaluation_loss"
"""The metric of an evaluation: the mean loss of held-out examples."""


class EntryError(RecipeError):
    """A value in a recipe is not allowed.

    entry: dotted path of the value, such as "run.steps", by which its line is found.
    fault: what is wrong with it, and what is wanted.
    """

    def __init__(self, entry: str, fault: str) -> None:
        super().__init__(f"{entry} {fault}")
        self.entry = entry


@dataclass(frozen=True, slots=True)
class ModelPart:
    """The table [model] of a recipe.

    program: `path.py:name` or `pkg.module:name`, a function that returns `(init, loss)`:
        `init(key)` makes the parameters; `loss(params, batch)`, or `loss(params, batch,
        key)`, is the mean loss of the batch, a scalar.
    options: keyword arguments of that function.
    """

    program: str
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A table [data.mixture.NAME]: one of several sources of examples.

    weight: share of the examples from this source, relative to the other weights.
    The other entries are those of `DataPart`.
    """

    weight: float = 1.0
    text: tuple[str, ...] = ()
    tokens: str = ""
    source: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])


@dataclass(frozen=True, slots=True)
class DataPart:
    """The table [data] of a recipe: one of `text`, `tokens`, `source` and `mixture`.

    batch: examples per step, over all devices.
    text: files, or patterns such as "books/*.txt", whose bytes are the tokens.
    tokens: a .npy file with one row of integers, or an .array_record file with one example
        per record.
    source: `path.py:name`, a function that returns a sequence of examples, each a pytree of
        arrays of the same shapes. options: keyword arguments of the function.
    mixture: several sources by name, in place of one.
    sequence: tokens per example of `text` or `tokens`. A batch is then `inputs` and
        `targets`, int32 [batch, sequence], where targets are shifted by one position.
    seed: seed of the order of the examples.
    held_out: share of the examples that is kept for evaluation; the last ones are taken.
    """

    batch: int
    text: tuple[str, ...] = ()
    tokens: str = ""
    source: str = ""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    mixture: Mapping[str, SourcePart] = field(default_factory=dict[str, SourcePart])
    sequence: int = 0
    seed: int = 0
    held_out: float = 0.0

    def __post_init__(self) -> None:
        _require_one(self, "data", "text", "tokens", "source", "mixture")
        for name, part in self.mixture.items():
            _require_one(part, f"data.mixture.{name}", "text", "tokens", "source")
            if not 0 < part.weight < math.inf:
                fault = f"is {part.weight}; wanted a number above 0"
                raise EntryError(f"data.mixture.{name}.weight", fault)
        if self.mixture and self.options:
            fault = "belongs to source; give it to a source of the mixture"
            raise EntryError("data.options", fault)
        _require_least(self, "data", batch=1, seed=0)
        of_tokens = any(not part.source for part in self.sources.values())
        if of_tokens and self.sequence < 1:
            fault = f"is {self.sequence}; wanted the tokens of an example, 1 or more"
            raise EntryError("data.sequence", fault)
        if not 0 <= self.held_out < 1:
            fault = f"is {self.held_out}; wanted 0 to 0.99"
            raise EntryError("data.held_out", fault)

    @property
    def sources(self) -> Mapping[str, SourcePart]:
        """The sources by name; the only one of a recipe without a mixture has no name."""
        if self.mixture:
            return self.mixture
        return {"": SourcePart(1.0, self.text, self.tokens, self.source, self.options)}


@dataclass(frozen=True, slots=True)
class OptimizerPart:
    """The table [optimizer] of a recipe.

    name: name of an optax function that takes `learning_rate`.
    options: the other arguments of that function.
    clip_norm: largest global norm of the gradients; 0 for no clipping.
    """

    name: str = "adamw"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    clip_norm: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.clip_norm < math.inf:
            fault = (
                f"is {self.clip_norm}; wanted a number above 0, or 0 for no clipping"
            )
            raise EntryError("optimizer.clip_norm", fault)


@dataclass(frozen=True, slots=True)
class SchedulePart:
    """The table [schedule] of a recipe: the learning rate.

    name: name of an optax schedule, such as "cosine_decay_schedule".
    options: arguments of the schedule; the default schedule is constant and takes `value`.
    """

    name: str = "constant_schedule"
    options: Mapping[str, Any] = field(default_factory=lambda: {"value": 1e-3})


@dataclass(frozen=True, slots=True)
class PartitionPart:
    """The table [partition] of a recipe: the mesh and the tactics of the train step.

    mesh: axis sizes by name; at most one is -1, for all devices that are left.
    tactics: the name of a list of tactics in the model's module (`schedules`); or tactics
        in order, as text: ["data_parallel('data')", "fsdp('data')"]; or "auto" for a
        search.
    machine: the machine for predicted figures and for the search: a preset or a TOML file.
    budget: time budget of the search in seconds.
    gather: as in `mw.partition`.
    """

    mesh: Mapping[str, int] = field(default_factory=lambda: {"data": -1})
    tactics: str | tuple[str, ...] = ("data_parallel('data')",)
    machine: str = "cpu"
    budget: float = 15.0
    gather: str = "shared"

    def __post_init__(self) -> None:
        unknown = [axis for axis, size in self.mesh.items() if size == -1]
        wrong = [f"{a}={n}" for a, n in self.mesh.items() if n != -1 and n < 1]
        if wrong or len(unknown) > 1 or not self.mesh:
            raise EntryError(
                "partition.mesh",
                f"is {dict(self.mesh)}; wanted sizes of 1 or more, and at most one -1",
            )
        if not 0 < self.budget < math.inf:
            fault = f"is {self.budget}; wanted seconds, more than 0"
            raise EntryError("partition.budget", fault)


class OnNan(Enum):
    """What a run does if a step's loss, gradients or parameters are not finite.

    It ends after the last good checkpoint, or leaves the step's update out.
    """

    STOP = "stop"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class RunPart:
    """The table [run] of a recipe.

    steps: number of steps.
    seed: seed of the initial parameters and of the key that the loss may take.
    accumulate: parts into which a step cuts its batch, to compute the gradients of one
        after another and take their mean.
    on_nan: what happens if a step's loss, gradients or parameters are not finite.
    evaluate_every: steps between evaluations; 0 for no evaluation.
    evaluate_batches: batches per evaluation.
    log_every: steps between lines of the log.
    profile_step: the step to profile; 0 for none.
    """

    steps: int
    seed: int = 0
    accumulate: int = 1
    on_nan: OnNan = OnNan.STOP
    evaluate_every: int = 0
    evaluate_batches: int = 8
    log_every: int = 10
    profile_step: int = 0

    def __post_init__(self) -> None:
        least = {"seed": 0, "evaluate_every": 0, "profile_step": 0}
        least |= {"steps": 1, "accumulate": 1, "evaluate_batches": 1, "log_every": 1}
        _require_least(self, "run", **least)


@dataclass(frozen=True, slots=True)
class CheckpointPart:
    """The table [checkpoint] of a recipe: when checkpoints are saved, and which are kept.

    save_every: steps between checkpoints; 0 saves only at the end.
    The other entries decide which checkpoints are kept, as in `mw.Checkpoints`.
    """

    save_every: int = 100
    keep: int = 3
    every: int = 0
    best: int = 0
    metric: str = "loss"
    mode: str = "min"

    def __post_init__(self) -> None:
        _require_least(self, "checkpoint", save_every=0, keep=1, every=0, best=0)
        if self.mode not in MODES:
            fault = f"is {self.mode!r}; wanted one of {', '.join(MODES)}"
            raise EntryError("checkpoint.mode", fault)

    @property
    def retention(self) -> dict[str, Any]:
        """The arguments of `mw.Checkpoints` that decide which checkpoints are kept."""
        names = ("keep", "best", "metric", "mode")
        return {n: getattr(self, n) for n in names} | {"every": self.every or None}


@dataclass(frozen=True, slots=True)
class OutputPart:
    """The table [output] of a recipe: where results go, and in which form.

    folder: folder of checkpoints, metrics and profiles.
    csv, tensorboard: whether metrics are written as CSV, and for TensorBoard.
    """

    folder: str = "run"
    csv: bool = True
    tensorboard: bool = False


@dataclass(frozen=True, slots=True)
class ClusterPart:
    """The table [cluster] of a recipe: the cluster on which the run trains.

    address: as in `mw.cluster`, such as "local:4x2". By default the run uses the devices of
        this process, or of all processes of `jax.distributed`.
    workers, devices, platform, resources: the fields of `Workers`, for a cluster that is
        newly started.
    retries: losses of the workers in a row, without a new checkpoint, before the run ends.
    """

    address: str = ""
    workers: int = 1
    devices: int = 0
    platform: str = "cpu"
    resources: Mapping[str, Any] = field(default_factory=dict[str, Any])
    retries: int = 3

    def __post_init__(self) -> None:
        _require_least(self, "cluster", workers=1, devices=0, retries=1)


@dataclass(frozen=True, slots=True)
class Recipe:
    """A training run as its TOML file describes it; each field is one table of the file."""

    model: ModelPart
    data: DataPart
    run: RunPart
    optimizer: OptimizerPart = field(default_factory=OptimizerPart)
    schedule: SchedulePart = field(default_factory=SchedulePart)
    partition: PartitionPart = field(default_factory=PartitionPart)
    checkpoint: CheckpointPart = field(default_factory=CheckpointPart)
    cluster: ClusterPart = field(default_factory=ClusterPart)
    output: OutputPart = field(default_factory=OutputPart)

    def __post_init__(self) -> None:
        if self.run.evaluate_every and not self.data.held_out:
            raise EntryError(
                "run.evaluate_every",
                "needs examples to evaluate; add data.held_out = 0.05, say",
            )
        if self.data.batch % self.run.accumulate:
            fault = f"is {self.run.accumulate}, which does not divide data.batch = "
            raise EntryError("run.accumulate", f"{fault}{self.data.batch}")
        self._require_metric()

    def _require_metric(self) -> None:
        """Raise `EntryError` if the metric of the best checkpoints never appears."""
        known = ["loss", *([EVALUATION_LOSS] if self.run.evaluate_every else [])]
        chosen = self.checkpoint.metric
        if not self.checkpoint.best or chosen in known:
            return
        fault = (
            f"is {chosen!r}, which this run never saves; wanted {' or '.join(known)}"
        )
        if chosen == EVALUATION_LOSS:
            fault += ", or an evaluation: run.evaluate_every = 100, say"
        raise EntryError("checkpoint.metric", fault)


def _require_one(part: Any, table: str, *names: str) -> None:
    """Raise `EntryError` unless a table gives exactly one of some entries."""
    given = [name for name in names if getattr(part, name)]
    if len(given) != 1:
        what = " and ".join(given) or "no examples"
        *first, last = names
        wanted = f"wanted one of {', '.join(first)} and {last}"
        raise EntryError(table, f"names {what}; {wanted}")


def _require_least(part: Any, table: str, **least: int) -> None:
    """Raise `RecipeError` if an entry of a table is below its least allowed value."""
    for name, value in least.items():
        if getattr(part, name) < value:
            fault = f"is {getattr(part, name)}; wanted {value} or more"
            raise EntryError(f"{table}.{name}", fault)
