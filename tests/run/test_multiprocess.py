"""Several processes run one step together, over loopback."""

from pathlib import Path

from tests.run.processes import run_workers

WORKER = Path(__file__).with_name("multiprocess_worker.py")


def test_two_processes_run_one_step():
    for rank, (out, err) in enumerate(run_workers(WORKER)):
        assert "mesh data=2,model=2 has devices of several processes" in out, err[
            -3000:
        ]
        assert f"process {rank} of 2: equal on 4 devices" in out, err[-3000:]
