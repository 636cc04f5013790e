"""One of two processes that save and restore together, in one directory."""

import os
import sys
import warnings
from pathlib import Path


def main(rank: int, count: int, port: str, folder: str) -> None:
    """Save two checkpoints, damage the second, restore the first, on another mesh."""
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy as np
    from jax.sharding import NamedSharding, PartitionSpec

    import meshwright as mw

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", count, rank)
    values = np.arange(64.0, dtype="f4").reshape(8, 8)

    def state_on(shape, spec, plus):
        mesh = jax.make_mesh(shape, ("data", "model"))
        sharding = NamedSharding(mesh, PartitionSpec(*spec))
        return {
            "w": jax.make_array_from_callback(
                values.shape, sharding, lambda index: values[index] + plus
            )
        }

    directory = Path(folder)
    checkpoints = mw.Checkpoints(directory)
    try:
        mw.Checkpoints(directory)
    except mw.MeshwrightError as error:
        print(f"refused {rank}: {error}")
    for step in (1, 2):
        state = state_on((4, 1), ("data", None), step)
        checkpoints.save(step, state, position=step, metrics={"loss": 1.0})
    checkpoints.wait()
    print(f"steps {rank}: {checkpoints.steps}")
    if rank == 0:
        for path in (directory / "2" / "state").rglob("d/*"):
            path.write_bytes(path.read_bytes()[:-8])
    like = state_on((2, 2), ("model", "data"), 0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        restored = checkpoints.restore(like)
    print(f"skipped {rank}: {restored.skipped[0]}; {len(caught)} warnings")
    assert restored.state["w"].sharding == like["w"].sharding
    for shard in restored.state["w"].addressable_shards:
        np.testing.assert_array_equal(shard.data, values[shard.index] + 1)
    checkpoints.save(2, restored.state, position=2)
    checkpoints.close()
    print(f"restored {rank}: step {restored.step}, then {checkpoints.steps}")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4])
