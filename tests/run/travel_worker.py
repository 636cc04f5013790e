"""One of several processes that run a plan that another process has saved."""

import os
import sys
from collections.abc import Iterator

MESH = {"data": 2, "model": 2}
RULES = [("batch", "data"), ("mlp", "model"), ("embed", "data")]
AXES = {
    "x": ("batch", None),
    "params": {"up": (None, "embed", "mlp"), "down": (None, "mlp", "embed")},
}


def step(params, x):
    """Scanned layers in a checkpoint: the gradients of both weights, and the loss."""
    import jax
    import jax.numpy as jnp

    def loss(params):
        @jax.checkpoint
        def layer(h, w):
            return jnp.tanh(h @ w["up"]) @ w["down"], None

        return jnp.mean(jax.lax.scan(layer, x, params)[0] ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    return grads["up"], grads["down"], value


def arguments():
    """Equal arguments in all processes."""
    import numpy as np

    rng = np.random.default_rng(0)

    def normal(*extents):
        return (0.3 * rng.normal(size=extents)).astype("f4")

    return {"up": normal(2, 16, 32), "down": normal(2, 32, 16)}, normal(16, 16)


def main(rank: int, count: int, port: str, folder: str, *names: str) -> None:
    """Join the other processes and run each plan in three ways."""
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", count, rank)
    for name in names:
        for way in run_plan(folder, name):
            print(f"process {rank} of {count}: {name}, {way} is equal")


def run_plan(folder: str, plan_name: str) -> Iterator[str]:
    """The ways in which the plan runs, each once its results have been compared."""
    import jax
    import numpy as np

    import meshwright as mw

    wanted = list(np.load(f"{folder}/wanted.npz").values())
    plan = mw.Plan.load(f"{folder}/{plan_name}.json")
    args = arguments()
    placed = jax.tree.map(jax.device_put, jax.tree.leaves(args), [*plan.in_shardings])
    placed = jax.tree.unflatten(jax.tree.structure(args), placed)
    tactics = eval(plan.code, {"mw": mw})
    ways = {
        "the loaded plan": mw.partition(step, plan),
        "its code": mw.partition(step, plan.mesh, tactics),
        "annotated": jax.jit(plan.annotate(step)),
    }
    for name, way in ways.items():
        got = way(*placed)
        for one, other, sharding in zip(got, wanted, plan.out_shardings, strict=True):
            assert one.sharding.is_equivalent_to(sharding, one.ndim), name
            for shard in one.addressable_shards:
                np.testing.assert_allclose(
                    shard.data, other[shard.index], rtol=1e-4, atol=1e-6
                )
        yield name


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
