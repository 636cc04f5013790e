"""One of several processes that run the same partitioned step together."""

import os
import sys


def step(state, x):
    """Two weights, one step of gradient descent."""
    import jax
    import jax.numpy as jnp

    def loss(w):
        return jnp.mean(jnp.tanh(x @ w["up"]) @ w["down"])

    value, grads = jax.value_and_grad(loss)(state)
    return jax.tree.map(lambda w, g: w - 0.1 * g, state, grads), value


def main(rank: int, count: int, port: str) -> None:
    """Join the other processes, run two steps, compare this process's shards."""
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy as np

    import meshwright as mw
    from meshwright.errors import PlanError

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", count, rank)
    rng = np.random.default_rng(0)
    state = {
        "up": rng.normal(size=(8, 16)).astype("f4"),
        "down": rng.normal(size=(16, 8)).astype("f4"),
    }
    x = rng.normal(size=(16, 8)).astype("f4")
    wanted = step(step(state, x)[0], x)
    run = mw.partition(
        step,
        {"data": 2, "model": 2},
        [mw.shard({"x": 0}, "data"), mw.shard({"state.up": 1}, "model")],
    )
    got = run(run(state, x)[0], x)
    for w, g in zip(jax.tree.leaves(wanted), jax.tree.leaves(got), strict=True):
        for shard in g.addressable_shards:
            np.testing.assert_allclose(shard.data, w[shard.index], atol=1e-5)
    try:
        run.check(state, x)
    except PlanError as error:
        print(error)
    print(f"process {rank} of {count}: equal on {jax.device_count()} devices")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
