"""A process that saves one state after another without a pause until it is killed."""

from multiprocessing.connection import Connection
from pathlib import Path


def write_until_killed(
    directory: Path, megabytes: int, told: "Connection[tuple[str, int], None]"
) -> None:
    """Tell the step before each save, and once it is committed; state n is `range + n`.

    The next save begins while one is written, and returns once the one before is committed.
    """
    import jax.numpy as jnp

    import meshwright as mw

    with mw.Checkpoints(directory, keep=2) as checkpoints:
        step = first = (checkpoints.latest or 0) + 1
        while True:
            numbers = jnp.arange(megabytes << 18, dtype=jnp.int32)
            state = {f"part_{i}": numbers[i::4] + step for i in range(4)}
            told.send(("saving", step))
            checkpoints.save(step, state, position=step)
            if step > first:
                told.send(("committed", step - 1))
            step += 1
