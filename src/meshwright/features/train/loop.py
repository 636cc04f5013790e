"""The training loop: steps, evaluations and checkpoints, on the devices of a runner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from meshwright.features.train.data.position import position_of
from meshwright.features.train.interruption import Interruption
from meshwright.features.train.monitor import Monitor
from meshwright.features.train.prepare import Prepared
from meshwright.features.train.recipes.recipe import EVALUATION_LOSS
from meshwright.features.train.runners.run_step import RunnerStep, State
from meshwright.features.train.runners.runner import Runner, profile_step


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """All that the training loop needs.

    prepared: the recipe, with the batches that it names. runner: the devices.
    step: the partitioned train step.
    evaluate: the partitioned evaluation, a function of (state, batch); None without
        evaluation.
    num_devices: the number of devices for which these functions were partitioned.
    folder: folder of the output.
    """

    prepared: Prepared
    runner: Runner
    step: RunnerStep
    evaluate: Callable[..., Any] | None
    num_devices: int
    folder: Path


def run_steps(
    job: Job, state: State, done: int, monitor: Monitor, interruption: Interruption
) -> int:
    """Run the remaining steps of a recipe, and return the number of steps done.

    done: number of steps done before. The result is less than the recipe's steps if the run
        was interrupted. The state after the last step is saved in both cases.
    """
    recipe, runner = job.prepared.recipe, job.runner
    run = recipe.run
    ahead = runner.put_ahead(job.step, job.prepared.batches, done)
    monitor.begin(done, run.steps)
    while done < run.steps:
        batch = next(ahead)
        done += 1
        if done == run.profile_step:
            folder = job.folder / "profile"
            results, times = profile_step(runner, job.step, state, batch, folder)
            state, metrics = results
            monitor.say(f"profile of step {done}: {times}")
        else:
            state, metrics = job.step.call(state, batch)
        monitor.step(done, metrics)
        if run.evaluate_every and done % run.evaluate_every == 0:
            evaluate(job, state, done, monitor)
        ends = runner.agree_to_end(done, interruption.received is not None)
        if ends or _is_due(recipe.checkpoint.save_every, done) or done == run.steps:
            save(job, state, done, monitor)
        if ends:
            break
    monitor.fetch()
    runner.commit()
    return done


def _is_due(every: int, number: int) -> bool:
    return every > 0 and number % every == 0


def evaluate(job: Job, state: State, number: int, monitor: Monitor) -> None:
    """Measure the mean loss of held-out examples, and write it as a metric.

    number: the current step. All evaluations use the same batches.
    """
    assert job.evaluate is not None
    monitor.fetch()
    count = job.prepared.recipe.run.evaluate_batches
    batches = islice(job.runner.put_ahead(job.step, job.prepared.held_out, 0), count)
    rows = job.runner.values([job.evaluate(state, each) for each in batches])
    loss = sum(row["loss"] for row in rows) / len(rows)
    monitor.note(number, {EVALUATION_LOSS: loss})
    monitor.evaluated = loss
    monitor.skip_time()


def save(job: Job, state: State, number: int, monitor: Monitor) -> None:
    """Save the state after `number` steps, with the position in the data.

    The metrics of all steps so far are in files before, so that a killed run loses none of
    them. `DivergedError` is raised instead of saving a state that is not finite.
    """
    monitor.fetch()
    monitor.flush()
    metrics = {"loss": monitor.latest["loss"]}
    if monitor.evaluated is not None:
        metrics[EVALUATION_LOSS] = monitor.evaluated
    prepared = job.prepared
    position = position_of(prepared.recipe.data, prepared.identity, number)
    job.runner.save(number, state, job.step, position, metrics)
    monitor.watch.saved = number
    monitor.skip_time()
