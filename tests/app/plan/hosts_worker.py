"""One of several processes that plan and run one step together."""

import hashlib
import importlib
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
    """Join the other processes, plan, fail together, and run the plan."""
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    import numpy as np

    import meshwright as mw

    autoplan = importlib.import_module("meshwright.app.autoplan")

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", count, rank)
    rng = np.random.default_rng(0)
    state = {
        "up": rng.normal(size=(8, 16)).astype("f4"),
        "down": rng.normal(size=(16, 8)).astype("f4"),
    }
    x = rng.normal(size=(16, 8)).astype("f4")
    searched = []
    find_here = autoplan._find_here
    autoplan._find_here = lambda *args: searched.append(rank) or find_here(*args)

    def plan(**options):
        try:
            return mw.autoplan(step, (state, x), machine="tpu-v5e", chips=4, **options)
        except mw.MeshwrightError as error:
            print(f"error {rank}: {error}")

    found = plan(budget_s=5.0, tactics=[mw.data_parallel("data", "x")])
    digest = hashlib.sha1(found.to_json().encode()).hexdigest()
    print(f"plan {digest} of {len(found.search.candidates)} candidates")
    plan(memory=1000)  # an error of the search
    plan(seed=rank)  # options that differ
    print(f"process {rank} searched {len(searched)} times")

    run = mw.partition(step, found)
    wanted = step(state, x)
    _, sharding = found.in_shardings  # each process has half of the rows
    half = len(x) // count
    rows = jax.make_array_from_process_local_data(
        sharding, x[rank * half : (rank + 1) * half], x.shape
    )
    whole = jax.make_array_from_callback(x.shape, sharding, lambda index: x[index])
    for part, same in zip(
        rows.addressable_shards, whole.addressable_shards, strict=True
    ):
        np.testing.assert_array_equal(part.data, same.data)
    got = run(state, rows)
    for w, g in zip(jax.tree.leaves(wanted), jax.tree.leaves(got), strict=True):
        for shard in g.addressable_shards:
            np.testing.assert_allclose(
                shard.data, np.asarray(w)[shard.index], atol=1e-5
            )
    print(f"process {rank} of {count}: equal on {jax.device_count()} devices")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
