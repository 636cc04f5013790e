"""Several processes run one step together, over loopback."""

import os
import socket
import subprocess
import sys
from pathlib import Path

WORKER = Path(__file__).with_name("multiprocess_worker.py")


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_two_processes_run_one_step():
    port = str(free_port())
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    workers = [
        subprocess.Popen(
            [sys.executable, str(WORKER), str(rank), "2", port],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        results = [w.communicate(timeout=240) for w in workers]
    finally:
        for worker in workers:
            worker.kill()
    for rank, (out, err) in enumerate(results):
        assert f"process {rank} of 2: equal on 4 devices" in out, err[-3000:]
