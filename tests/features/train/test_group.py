"""Two processes train by one recipe, each on its own rows; one process goes on."""

from pathlib import Path

import numpy as np
import pytest

from tests.features.train.recipes import losses, run
from tests.run.processes import run_workers

WORKER = Path(__file__).with_name("group_worker.py")


@pytest.mark.slow
def test_two_processes_read_their_rows_and_one_goes_on_with_equal_losses(tmp_path):
    together, alone = tmp_path / "together", tmp_path / "alone"
    workers = run_workers(WORKER, str(together))
    for (out, err), rows in zip(workers, ([0, 1, 2, 3], [4, 5, 6, 7]), strict=True):
        assert "step 6 of 6" in out, err[-3000:]
        assert f"rows {rows}" in out, err[-3000:]
    changes = [("evaluate_every = 6", "")]
    run(together, *changes, resume=True)
    run(alone, *changes)
    ours, wanted = losses(together), losses(alone)
    assert list(ours) == list(wanted) == list(range(1, 13))
    np.testing.assert_allclose(
        [float(x) for x in ours.values()],
        [float(x) for x in wanted.values()],
        rtol=1e-5,
    )
