"""`train`: a training run, from reading its recipe to the last checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import jax

from meshwright.app.partition import partition
from meshwright.app.plan import Plan
from meshwright.errors import ClusterError, RecipeError
from meshwright.features.checkpoint import Restored
from meshwright.features.train.data.position import position_of, require_same_data
from meshwright.features.train.divergence import Watch
from meshwright.features.train.interruption import Interruption, catch_interruption
from meshwright.features.train.loop import Job, run_steps
from meshwright.features.train.metrics import open_writers
from meshwright.features.train.monitor import Monitor, rates, show_row
from meshwright.features.train.prepare import Prepared, prepare
from meshwright.features.train.recipes.partitioning import sharding_tactics
from meshwright.features.train.recipes.recipe import Recipe
from meshwright.features.train.recovery import Recovery
from meshwright.features.train.runners.runner import (
    Runner,
    open_runner,
    partition_step,
)

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
    runner = (make_runner or open_runner)(folder / CHECKPOINTS, recipe)
    recovery = Recovery(recipe.cluster.retries)
    try:
        with catch_interruption() as interruption:
            attempts = Attempts(prepared, runner, folder, recovery, interruption)
            return attempts.run(resume, tell_plan)
    finally:
        runner.close()


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
        job = None
        while True:
            devices = self.runner.wait_for_devices()
            try:
                if job is None or job.num_devices != devices:
                    job = self._partition(devices)
                    tell_plan(job.step.plan)
                return self._run(job, resume)
            except ClusterError as error:
                at_s = time.monotonic()
                if not self.runner.recover():
                    raise
                self.recovery.lose(error, at_s)
                resume = True

    def _partition(self, num_devices: int) -> Job:
        prepared = self.prepared
        step = partition_step(
            self.runner,
            prepared.functions.train_step,
            prepared.shapes,
            prepared.recipe.partition,
            prepared.tactics,
            num_devices,
        )
        evaluate = None
        if prepared.recipe.run.evaluate_every > 0:
            tactics = sharding_tactics(step.plan)
            evaluate = partition(prepared.functions.evaluate, step.on, tactics)
        return Job(prepared, self.runner, step, evaluate, num_devices, self.folder)

    def _run(self, job: Job, resume: bool) -> Outcome:
        """Run from the last checkpoint, or from the first step if there is none."""
        recipe, runner, folder = self.prepared.recipe, self.runner, self.folder
        step = job.step
        progress = runner.restore(step)
        _check_progress(self.prepared, progress, folder, resume)
        if progress is None:
            init, key = self.prepared.functions.init, jax.random.key(recipe.run.seed)
            state, done = step.call.init(init, key, argnum=0), 0
        else:
            state, done = progress.state, progress.step
        self.recovery.resume(done)
        writers = open_writers(recipe.output, folder, done) if runner.is_first else []
        rates_of = partial(rates, step.plan, recipe.data.batch)
        every = recipe.run.log_every
        watch = Watch(recipe.run.on_nan, folder, done)
        with Monitor(runner, writers, rates_of, every, self.recovery, watch) as monitor:
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
    prepared: Prepared, progress: Restored | None, folder: Path, resume: bool
) -> None:
    """Raise `RecipeError` if the run that the folder holds must not be continued."""
    if progress is None:
        return
    if not resume:
        raise RecipeError(
            f"{folder} has a run of {progress.step} steps; go on with --resume (or "
            "resume=True), or name another folder with --out"
        )
    wanted = position_of(prepared.recipe.data, prepared.identity, progress.step)
    require_same_data(wanted, progress, folder)


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
