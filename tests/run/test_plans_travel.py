"""A plan that one process made runs in several others, and as plain `jax.jit` there."""

from pathlib import Path

import numpy as np
import pytest

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


@pytest.mark.parametrize("name", PLANS)
def test_a_saved_plan_runs_and_is_annotated_in_two_processes(name, tmp_path):
    plan = mw.partition(step, MESH, PLANS[name]).plan(*arguments())
    assert any(any(leaf.spec) for leaf in plan.inputs)
    plan.save(tmp_path / "plan.json")
    np.savez(tmp_path / "wanted.npz", *map(np.asarray, step(*arguments())))
    results = run_workers(WORKER, str(tmp_path))
    for rank, (out, err) in enumerate(results):
        for way in ("the loaded plan", "its code", "annotated"):
            assert f"process {rank} of 2: {way} is equal" in out, err[-3000:]
