"""Writers of checkpoints that are killed in the middle of a save, and what is left."""

import multiprocessing
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import jax.numpy as jnp
import numpy as np

import meshwright as mw
from tests.features.checkpoint.writing_worker import write_until_killed

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["jax", "orbax.checkpoint", "meshwright.features.checkpoint", __name__]
)
"""Writers start from a process that has imported all that they need, and used nothing."""


@contextmanager
def started_writer(
    directory: Path, megabytes: int
) -> Iterator[tuple[BaseProcess, Connection]]:
    """A process that saves until the body ends, and the messages that it sends."""
    heard, told = CONTEXT.Pipe(duplex=False)
    arguments = (directory, megabytes, told)
    worker = CONTEXT.Process(target=write_until_killed, args=arguments, daemon=True)
    worker.start()
    told.close()
    try:
        yield worker, heard
    finally:
        worker.kill()
        worker.join()
        heard.close()
        worker.close()


def kill_while_saving(directory: Path, megabytes: int, rng: random.Random) -> int:
    """Start a writer, kill it while it saves, and return the last step that it committed.

    It is killed 0 to 1.2 times the duration of one save after it has begun another, so that
    some kills fall into the commit and into the deletion of old checkpoints.
    """
    committed, started, seconds = 0, 0.0, 0.0
    with started_writer(directory, megabytes) as (worker, heard):
        while True:
            what, step = heard.recv()
            if what == "committed":
                committed = step
                seconds = seconds or time.monotonic() - started
            elif seconds and rng.random() < 0.5:
                time.sleep(rng.uniform(0, 1.2) * seconds)
                break
            else:
                started = time.monotonic()
        worker.kill()
        worker.join()
        while heard.poll():
            try:
                what, step = heard.recv()
            except EOFError:
                break
            committed = step if what == "committed" else committed
    return committed


def require_newest_is_whole(directory: Path, committed: int, megabytes: int) -> int:
    """The newest step, which is at least `committed` and restores bit for bit."""
    checkpoints = mw.Checkpoints(directory, read_only=True)
    newest = checkpoints.latest
    assert newest is not None
    assert newest >= committed
    numbers = np.arange(megabytes << 18, dtype=np.int32)
    like = {f"part_{i}": jnp.zeros(len(numbers[i::4]), jnp.int32) for i in range(4)}
    restored = checkpoints.restore(like, step=newest)
    assert restored.position == newest
    for i in range(4):
        np.testing.assert_array_equal(
            restored.state[f"part_{i}"], numbers[i::4] + newest
        )
    return newest
