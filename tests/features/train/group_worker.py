"""One of two processes that train by one recipe together."""

import os
import sys
from pathlib import Path


def main(rank: int, count: int, port: str, folder: str) -> None:
    """Train to step 6, and print how many examples this process has read."""
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", count, rank)

    sys.path.insert(0, str(Path(__file__).parents[3]))
    from meshwright.features.train.data.batches import Batches
    from tests.features.train.recipes import run

    rows = []
    plain = Batches.ahead
    Batches.ahead = lambda self, start, wanted: (
        rows.append(wanted) or plain(self, start, wanted)
    )
    outcome = run(folder, ("steps = 12", "steps = 6"), ("evaluate_every = 6", ""))
    print(f"process {rank}: {outcome}; rows {rows[0]}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
