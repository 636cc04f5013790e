"""Executors of asynchronous replicas, on devices of this process or on a cluster."""

from collections.abc import Callable
from typing import Any

import jax

from meshwright.app.partition import partition
from meshwright.features.cluster.client import Slice
from meshwright.features.cluster.replicate.replica_threads import fetch
from meshwright.run.local.devices import find_devices

type ReplicaFn = Callable[[Any, Any], Any]
"""A function of (state, batch)."""

type Executor = Callable[[ReplicaFn], ReplicaFn]
"""A function that makes a function of (state, batch) run on one device or slice.

The resulting function waits for its results.
"""


def num_devices_for(replicas: int) -> int:
    """The largest number of this process's devices that divides the number of replicas."""
    most = min(len(find_devices()), replicas)
    return max(n for n in range(1, most + 1) if replicas % n == 0)


def replica_devices(replicas: int, num_devices: int) -> list[Any]:
    """The device of each replica, of the first `num_devices` devices."""
    devices = find_devices()
    return [devices[i * num_devices // replicas] for i in range(replicas)]


def on_device(device: Any, fn: ReplicaFn) -> ReplicaFn:
    """The executor of a replica on one device of this process."""
    compiled = jax.jit(fn)

    def run(state: Any, batch: Any) -> Any:
        args = jax.device_put((state, batch), device)
        return jax.block_until_ready(compiled(*args))

    return run


def on_slice(part: Slice, fn: ReplicaFn) -> ReplicaFn:
    """The executor of a replica on a slice (devices) of a cluster.

    States and results pass through this process.
    """
    step = partition(fn, part)
    return lambda state, batch: fetch(step(state, batch))


def bring_home(tree: Any) -> Any:
    """The pytree with its arrays copied to the first device of this process."""
    return jax.device_put(fetch(tree), find_devices()[0])
