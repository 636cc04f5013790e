"""Several processes save and restore together, and decide alike."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

import meshwright as mw
from tests.run.processes import run_workers

WORKER = Path(__file__).with_name("group_worker.py")


def test_two_processes_save_restore_and_refuse_together(tmp_path):
    folder = tmp_path / "run"
    for rank, (out, err) in enumerate(run_workers(WORKER, str(folder))):
        assert f"refused {rank}: {folder} has another writer" in out, err[-3000:]
        assert f"steps {rank}: (1, 2)" in out, err[-3000:]
        assert f"skipped {rank}: step 2: w cannot be read" in out, err[-3000:]
        assert f"restored {rank}: step 1, then (1, 2)" in out, err[-3000:]
    reading = mw.Checkpoints(folder, read_only=True)
    restored = reading.restore(
        {"w": jnp.zeros((8, 8))}
    )  # by one process, on one device
    wanted = np.arange(64).reshape(8, 8) + 1
    np.testing.assert_array_equal(restored.state["w"], wanted)
    assert restored.position == 2
