"""A plan that one process made runs in several others, and as plain `jax.jit` there."""

from pathlib import Path

import numpy as np

import meshwright as mw
from tests.run.processes import run_workers
from tests.run.travel_worker import AXES, MESH, RULES, arguments, step

WORKER = Path(__file__).with_name("travel_worker.py")

PLANS = {
    "tactics": [mw.data_parallel("data", "x"), mw.megatron("model")],
    "searched": [
        mw.pin({"x": "[data, -]"}),
        mw.auto(("data", "model"), machine="tpu-v5e"),
    ],
    "logical axes": mw.from_logical_axes(RULES, AXES, mesh=MESH),
}


def test_saved_plans_run_and_are_annotated_in_two_processes(tmp_path):
    for name, tactics in PLANS.items():
        plan = mw.partition(step, MESH, tactics).plan(*arguments())
        assert any(any(leaf.spec) for leaf in plan.inputs)
        plan.save(tmp_path / f"{name}.json")
    np.savez(tmp_path / "wanted.npz", *map(np.asarray, step(*arguments())))
    results = run_workers(WORKER, str(tmp_path), *PLANS)
    for rank, (out, err) in enumerate(results):
        for name in PLANS:
            for way in ("the loaded plan", "its code", "annotated"):
                words = f"process {rank} of 2: {name}, {way} is equal"
                assert words in out, err[-3000:]
