"""Replicas in lockstep and asynchronous: a slow one, D4PG's return, and ResNet-50.

    python -m benchmarks cluster replicate slow [--gradients 400]
    python -m benchmarks cluster replicate d4pg [--rounds 60] [--seeds 0,1,2]
    python -m benchmarks cluster replicate resnet

`slow`: four replicas of a small step, which sleeps for 20 ms, and for 100 ms on one of
them; in lockstep all sleep at the same time. Counted are gradients that were applied, per
second, from the second update on. `d4pg`: the pendulum of the zoo with 4 replicas of the
learner and an actor beside them; the return is the mean of the last 6 trials. `resnet`: the
plan of ResNet-50 with 8 replicas of 32 images, a check of it with 4 replicas of 2 small
images, and CPU seconds of 4 replicas on one device and of the ordinary step.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.harness import STORED, Options, benchmark, option

os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=4")

import jax
import jax.numpy as jnp
import numpy as np
import optax

import meshwright as mw
from zoo import d4pg_replicas, resnet
from zoo.classifier import batch_shapes

REPLICAS = 4
USUAL_S, SLOW_S = 0.02, 0.1
"""Seconds that a step sleeps, and one of the slow replica."""


def sleep(seconds: Any) -> Any:
    """Sleep as long as the slowest replica that is in `seconds`; returns zeros."""
    time.sleep(float(np.max(seconds)))
    return np.zeros_like(seconds)


def step_of(replicator: mw.Replicator, optimizer: Any) -> Any:
    """A step of a linear fit that sleeps before it computes."""
    wrapped = replicator.wrap_optimizer(optimizer)

    def step(state: Any, batch: Any) -> Any:
        w, rest = state
        seconds = batch["seconds"]
        zero = jax.pure_callback(sleep, seconds, seconds, vmap_method="broadcast_all")
        x = batch["x"] + zero
        loss, gradient = jax.value_and_grad(lambda w: jnp.mean((x @ w) ** 2))(w)
        updates, rest = wrapped.update(gradient, rest)
        return (optax.apply_updates(w, updates), rest), loss

    return step


def slow_input(context: Any) -> Iterator[Any]:
    """Batches with the seconds that their step sleeps."""
    seconds = np.float32(SLOW_S if context.replica == 3 else USUAL_S)
    while not context.is_stopped():
        yield {"x": np.ones((8, 32), np.float32), "seconds": seconds}


def throughput(replicator: mw.Replicator, gradients: int) -> dict[str, Any]:
    """Gradients applied in a second, by replica, and how many were dropped."""
    optimizer, counts = optax.sgd(0.01), [0] * REPLICAS
    w = jnp.ones(32)
    run = replicator.run(
        step_of(replicator, optimizer), slow_input, (w, optimizer.init(w)), steps=10**9
    )
    next(run)  # compiles
    begin_s = time.perf_counter()
    for update in run:
        for replica in update.replicas:
            counts[replica] += 1
        if sum(counts) >= gradients:
            break
    seconds = time.perf_counter() - begin_s
    run.close()
    per_s = sum(counts) / seconds
    load = os.getloadavg()[0]
    dropped = update.num_dropped
    return {"per_s": per_s, "applied": counts, "dropped": dropped, "load": load}


def measure_slow(gradients: int) -> dict[str, Any]:
    """Throughput in both regimes; `gain` is over the synchronous one."""
    rows = {"synchronous": throughput(mw.Replicator(REPLICAS, 1), gradients)}
    for staleness in (0, 4, 16):
        r = mw.Replicator(REPLICAS, 1, regime="asynchronous", staleness=staleness)
        rows[f"staleness {staleness}"] = throughput(r, gradients)
    for row in rows.values():
        row["gain"] = row["per_s"] / rows["synchronous"]["per_s"]
    return rows


def measure_d4pg(rounds: int, seeds: list[int], staleness: int) -> dict[str, Any]:
    """Returns in both regimes, by seed."""
    regimes: dict[str, dict[str, Any]] = {
        "synchronous": {},
        f"staleness {staleness}": {"regime": "asynchronous", "staleness": staleness},
    }
    found: dict[str, Any] = {"rounds": rounds}
    for name, options in regimes.items():
        for seed in seeds:
            replicator = mw.Replicator(REPLICAS, 1, **options)
            rows = list(d4pg_replicas.train(replicator, seed, rounds))
            returns = [round(row["return"], 1) for row in rows]
            last = float(np.mean(returns[-6:]))
            row = {"last": last, "dropped": rows[-1]["dropped"], "returns": returns}
            found.setdefault(name, {})[seed] = row
            print(name, "seed", seed, "return", last, flush=True)
    return found


def cpu_s(step: Any, *args: Any) -> float:
    """CPU seconds of a call after the first one, which compiles."""
    jax.block_until_ready(step(*args))
    begin_s = time.process_time()
    jax.block_until_ready(step(*args))
    return time.process_time() - begin_s


def measure_resnet() -> dict[str, Any]:
    """Counts of the plan, the summary of the check, and CPU seconds on one device."""
    full = resnet.SIZES["resnet_50"]
    state = jax.eval_shape(partial(resnet.start, full), jax.random.key(0))
    r = mw.Replicator(8, 8)  # a plan needs no devices
    batches = jax.eval_shape(r.split, batch_shapes(full.batch, full.size))
    plan = r.step(resnet.train_step_for(full, r)).plan(state, batches)
    found: dict[str, Any] = {"counts": dict(plan.counts), "whole": len(plan.whole)}

    small = replace(full, batch=8, size=64, classes=16)
    state = jax.jit(partial(resnet.start, small))(jax.random.key(0))
    batch = next(resnet.batches(small, seed=0))
    r = mw.Replicator(4)
    step = r.step(resnet.train_step_for(small, r))
    found["check"] = step.check(state, r.split(batch)).summary

    alone = mw.Replicator(4, 1)
    four = alone.step(resnet.train_step_for(small, alone))
    one = jax.jit(resnet.train_step_for(small))
    found["cpu_s"] = {
        "four replicas on one device": cpu_s(four, state, alone.split(batch)),
        "ordinary step": cpu_s(one, state, batch),
    }
    return found


@benchmark(
    option("what", choices=("slow", "d4pg", "resnet")),
    option("--gradients", type=int, default=400),
    option("--rounds", type=int, default=60),
    option("--seeds", default="0,1,2"),
    option("--staleness", type=int, default=8),
    out=STORED,
)
def main(options: Options) -> None:
    """Measure one part, print it, and write it beside the other."""
    if options.what == "slow":
        figures = measure_slow(options.gradients)
    elif options.what == "resnet":
        figures = measure_resnet()
    else:
        seeds = [int(seed) for seed in options.seeds.split(",")]
        figures = measure_d4pg(options.rounds, seeds, options.staleness)
    known = options.stored({})
    options.save(known | {options.what: figures})
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
