"""`Runner`: the devices of a training run, with what all kinds of devices have in common.

They are those of this process, of all processes of `jax.distributed` (`local_runner.py`),
or those of a cluster (`cluster_runner.py`). Both classes have the same methods.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax

from meshwright.app.output.numbers import show_seconds
from meshwright.app.partition import partition
from meshwright.features.train.recipes.partitioning import decisions_for
from meshwright.features.train.recipes.recipe import PartitionPart, Recipe
from meshwright.features.train.runners.cluster_runner import ClusterRunner, open_cluster
from meshwright.features.train.runners.local_runner import LocalRunner
from meshwright.features.train.runners.run_step import Batch, RunnerStep, State
from meshwright.partitioner.tactics import Tactic

type Runner = LocalRunner | ClusterRunner


def open_runner(folder: Path, recipe: Recipe) -> Runner:
    """The runner on the recipe's cluster, or else on the devices that JAX sees.

    folder: folder of the checkpoints.
    """
    if recipe.cluster.address:
        cluster = open_cluster(recipe.cluster)
        return ClusterRunner(cluster, folder, recipe.checkpoint)
    return LocalRunner(folder, recipe.checkpoint)


def partition_step(
    runner: Runner,
    fn: Callable[..., Any],
    shapes: tuple[Any, Any],
    how: PartitionPart,
    tactics: tuple[Tactic, ...] | None,
    num_devices: int,
) -> RunnerStep:
    """Partition a function of (state, batch); the state is donated.

    shapes: types of state and batch. how: the recipe's mesh and search options.
    tactics: `None` to let a search find them.
    """
    mesh, schedule, gather = decisions_for(fn, shapes, how, tactics, num_devices)
    on = runner.place(mesh)
    step = partition(fn, on, schedule, gather=gather, donate_argnums=0)
    plan = step.plan(*shapes).on(how.machine, donate_state=True)
    return RunnerStep(step, on, plan, shapes[0])


def profile_step(
    runner: Runner, step: RunnerStep, state: State, batch: Batch, folder: Path
) -> tuple[Any, str]:
    """Run one step under a profiler; return its results, and its times as text.

    The folder gets JAX's profile, for XProf or Perfetto, and `predicted.json`, trace
    events of the predicted step if the plan has figures.
    """
    folder.mkdir(parents=True, exist_ok=True)
    jax.block_until_ready((state.step, batch))
    with runner.trace(folder):
        start_s = time.perf_counter()
        state, metrics = step.call(state, batch)
        jax.block_until_ready(metrics)
        seconds = time.perf_counter() - start_s
    text = f"{show_seconds(seconds)} measured"
    if step.plan.estimate is not None:
        text += f", {show_seconds(step.plan.step_time_s)} predicted"
        if runner.is_first:
            step.plan.trace(folder / "predicted.json")
    return (state, metrics), f"{text}; {folder}"
