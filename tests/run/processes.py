"""Runs a worker script in several processes, which find each other over loopback."""

import os
import socket
import subprocess
import sys
from pathlib import Path


def run_workers(worker: Path, *arguments: str, count: int = 2) -> list[tuple[str, str]]:
    """The stdout and stderr of each process of `worker RANK COUNT PORT ARGUMENTS...`."""
    port = str(_free_port())
    env = {k: v for k, v in os.environ.items() if k != "XLA_FLAGS"}
    workers = [
        subprocess.Popen(
            [sys.executable, str(worker), str(rank), str(count), port, *arguments],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        return [w.communicate(timeout=600) for w in workers]
    finally:
        for each in workers:
            each.kill()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
