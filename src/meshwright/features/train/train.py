"""`train`: a training run, from reading its recipe to the last checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax

from meshwright.app.plan import Plan
from meshwright.errors import ClusterError, RecipeError
from meshwright.features.train.data.batches import Batches
from meshwright.features.train.data.examples import open_source, split_held_out
from meshwright.features.train.interruption import Interruption, catch_interruption
from meshwright.features.train.loop import Job, position_of, run_steps
from meshwright.features.train.metrics import open_writers
from meshwright.features.train.monitor import Monitor, scale_of, show_row
from meshwright.features.train.recipes.model import load_model
from meshwright.features.train.recipes.optimizer import make_optimizer, make_schedule
from meshwright.features.train.recipes.partitioning import tactics_for
from meshwright.features.train.recipes.recipe import Recipe
from meshwright.features.train.recovery import Recovery
from meshwright.features.train.runners.cluster_runner import cluster_runner
from meshwright.features.train.runners.local_runner import LocalRunner
from meshwright.features.train.runners.runner import RestoredRun, Runner, RunnerStep
from meshwright.features.train.step_functions import StepFunctions, make_functions
from meshwright.partitioner.tactics import Tactic

CHECKPOINTS = "checkpoints"
"""Name of the folder of checkpoints inside the output folder."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a training run.

    first_step, last_step: first and last step that this call ran, counted from 1.
    steps: number of steps that the recipe asks for.
    metrics: metrics of the last step.
    interruption: the signal that ended the run early, if any.
    recovery: the losses of workers during the run.
    """

    first_step: int
    last_step: int
    steps: int
    metrics: dict[str, float]
    evaluation_loss: float | None
    folder: Path
    interruption: Interruption
    recovery: Recovery

    @property
    def is_complete(self) -> bool:
        """Whether all steps of the recipe are done."""
        return self.last_step >= self.steps

    def __str__(self) -> str:
        done = f"step {self.last_step} of {self.steps}"
        numbers = dict(self.metrics)
        if self.evaluation_loss is not None:
            numbers["evaluation_loss"] = self.evaluation_loss
        text = f"{done}: {show_row(numbers)}" if numbers else f"{done} was done already"
        losses = f"\n{self.recovery}" if self.recovery.losses else ""
        return f"{text}; {self.folder}{losses}"


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """The model functions, batches and tactics that a recipe names, loaded on the host.

    tactics: None if a search has to find them.
    held_out: batches for evaluation.
    """

    recipe: Recipe
    functions: StepFunctions
    tactics: tuple[Tactic, ...] | None
    batches: Batches
    held_out: Batches

    @property
    def shapes(self) -> tuple[Any, Any]:
        """The types of the state and of a batch."""
        state = jax.eval_shape(self.functions.init, jax.random.key(0))
        return state, self.batches.shapes()


@dataclass(frozen=True, slots=True, eq=False)
class RunFunctions:
    """The partitioned functions of a run for a certain number of devices.

    evaluate: None without evaluation.
    """

    step: RunnerStep
    evaluate: Callable[..., Any] | None
    devices: int


def prepare(recipe: Recipe) -> Prepared:
    """Load the model, the data and the optimizer that a recipe names."""
    model = load_model(recipe.model)
    schedule = make_schedule(recipe.schedule)
    optimizer = make_optimizer(recipe.optimizer, schedule)
    functions = make_functions(model, optimizer, schedule, recipe.run.seed)
    data = recipe.data
    kept, held_out = split_held_out(open_source(data), data.held_out)
    return Prepared(
        recipe,
        functions,
        tactics_for(recipe.partition, model.schedules),
        Batches(kept, data.batch, data.seed),
        Batches(held_out, data.batch, data.seed),
    )


def train(
    recipe: Recipe,
    *,
    resume: bool = False,
    make_runner: Callable[[Path, Recipe], Runner] | None = None,
    tell_plan: Callable[[Plan], None] = lambda plan: None,
) -> Outcome:
    """Run the training of a recipe to its last step, and return the outcome.

    Ctrl-C and SIGTERM save a checkpoint after the current step and end the run.
    resume: continue from the last checkpoint in the output folder, if there is one. The
        losses then equal those of an uninterrupted run: bit for bit on the same devices,
        within rounding on others.
    make_runner: makes the runner (the devices) from the folder of checkpoints and the
        recipe. By default it runs on the recipe's cluster, or on the devices that JAX sees.
    tell_plan: a function that is called with each plan before its first step.
    Raises `RecipeError` if the folder holds a run and `resume` is false, or a run on other
    data.
    """
    prepared = prepare(recipe)
    folder = Path(recipe.output.folder)
    chosen = make_runner or (cluster_runner if recipe.cluster.address else _local)
    runner = chosen(folder / CHECKPOINTS, recipe)
    recovery = Recovery(recipe.cluster.retries)
    try:
        with catch_interruption() as interruption:
            attempts = Attempts(prepared, runner, folder, recovery, interruption)
            return attempts.run(resume, tell_plan)
    finally:
        runner.close()


def _local(folder: Path, recipe: Recipe) -> Runner:
    return LocalRunner(folder, recipe.checkpoint)


@dataclass(slots=True, eq=False)
class Attempts:
    """A training run, which restarts from its last checkpoint if workers are lost."""

    prepared: Prepared
    runner: Runner
    folder: Path
    recovery: Recovery
    interruption: Interruption

    def run(self, resume: bool, tell_plan: Callable[[Plan], None]) -> Outcome:
        """Run until the last step, an interruption, or an error.

        If the workers are lost, the run continues from its last checkpoint.
        """
        partitioned = None
        while True:
            devices = self.runner.num_devices
            try:
                if partitioned is None or partitioned.devices != devices:
                    partitioned = self._partition(devices)
                    tell_plan(partitioned.step.plan)
                return self._run(partitioned, resume)
            except ClusterError as error:
                at_s = time.monotonic()
                if not self.runner.recover(error):
                    raise
                self.recovery.lose(error, at_s)
                resume = True

    def _partition(self, devices: int) -> RunFunctions:
        recipe, functions = self.prepared.recipe, self.prepared.functions
        step = self.runner.partition(
            functions.train_step,
            self.prepared.shapes,
            recipe.partition,
            self.prepared.tactics,
        )
        evaluate = None
        if recipe.run.evaluate_every > 0:
            evaluate = self.runner.partition_like(functions.evaluate, step)
        return RunFunctions(step, evaluate, devices)

    def _run(self, partitioned: RunFunctions, resume: bool) -> Outcome:
        """Run from the last checkpoint, or from the first step if there is none."""
        recipe, runner, folder = self.prepared.recipe, self.runner, self.folder
        step = partitioned.step
        progress = runner.restore(step)
        _check_progress(recipe, progress, folder, resume)
        if progress is None:
            init = self.prepared.functions.init
            state, done = runner.init(step, init, recipe.run.seed), 0
        else:
            state, done = progress.state, progress.step
        self.recovery.resume(done)
        job = Job(
            recipe,
            runner,
            step,
            partitioned.evaluate,
            self.prepared.batches,
            self.prepared.held_out,
            folder,
        )
        writers = open_writers(recipe.output, folder, done) if runner.is_first else []
        scale = scale_of(step.plan, recipe.data.batch)
        every = recipe.run.log_every
        with Monitor(runner, writers, scale, every, self.recovery) as monitor:
            if progress is not None:
                monitor.say(f"goes on after step {done}")
            last = run_steps(job, state, done, monitor, self.interruption)
        return Outcome(
            done + 1,
            last,
            recipe.run.steps,
            dict(monitor.latest),
            monitor.evaluated,
            folder,
            self.interruption,
            self.recovery,
        )


def _check_progress(
    recipe: Recipe, progress: RestoredRun | None, folder: Path, resume: bool
) -> None:
    """Raise `RecipeError` if the run that the folder holds must not be continued."""
    if progress is None:
        return
    if not resume:
        raise RecipeError(
            f"{folder} has a run of {progress.step} steps; go on with --resume (or "
            "resume=True), or name another folder with --out"
        )
    require_same_data(position_of(recipe, progress.step), progress, folder)


def require_same_data(
    wanted: Mapping[str, Any], progress: RestoredRun, folder: Path
) -> None:
    """Raise `RecipeError` if a saved run used other data or another order.

    wanted: the position in the data that the recipe gives, as `position_of` makes it.
    """
    saved = progress.position
    before: Mapping[str, Any] = saved if isinstance(saved, Mapping) else {}
    for name, value in wanted.items():
        if name not in before:
            raise RecipeError(
                f"step {progress.step} in {folder} was saved without data.{name} (its "
                f"position is {saved!r:.200}), so that the order of its examples is not "
                "known: another program or release has saved it. Name another folder with "
                "--out"
            )
        if before[name] != value:
            raise RecipeError(
                f"{folder} was trained with data.{name} = {before[name]!r}, the recipe has "
                f"{value!r}: its place in the data would not be the same. Restore the "
                "entry, or name another folder with --out"
            )


def with_options(
    recipe: Recipe,
    steps: int | None = None,
    folder: str | None = None,
    cluster: str | None = None,
) -> Recipe:
    """The recipe with entries replaced by options of the command line.

    steps, folder, cluster: replace `run.steps`, `output.folder` and `cluster.address`.
    """
    if steps is not None:
        recipe = replace(recipe, run=replace(recipe.run, steps=steps))
    if folder is not None:
        recipe = replace(recipe, output=replace(recipe.output, folder=folder))
    if cluster is not None:
        recipe = replace(recipe, cluster=replace(recipe.cluster, address=cluster))
    return recipe
