"""Executors of asynchronous replicas, on devices of this process or on a cluster."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from meshwright.app.partition import partition
from meshwright.features.cluster.client import Slice
from meshwright.features.cluster.replicate.replica_threads import fetch
from meshwright.run.local.devices import find_devices

Executor = Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]
"""A function that makes a function of (state, batch) run on one device or slice.

The resulting function waits for its results.
"""


def num_devices_for(replicas: int) -> int:
    """The largest number of this process's devices that divides the number of replicas."""
    found = len(find_devices())
    return max(n for n in range(1, min(found, replicas) + 1) if replicas % n == 0)


def on_devices(replicas: int, num_devices: int) -> list[Executor]:
    """An executor for each replica, on one of the first `num_devices` devices."""
    devices = find_devices()[:num_devices]
    return [_on_device(devices[i * num_devices // replicas]) for i in range(replicas)]


def _on_device(device: Any) -> Executor:
    def execute(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        compiled = jax.jit(fn)

        def run(state: Any, batch: Any) -> Any:
            args = jax.device_put((state, batch), device)
            return jax.block_until_ready(compiled(*args))

        return run

    return execute


def on_slices(slices: Sequence[Slice]) -> list[Executor]:
    """An executor for each slice (devices) of a cluster.

    States and results pass through this process.
    """
    return [_on_slice(part) for part in slices]


def _on_slice(part: Slice) -> Executor:
    def execute(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        step = partition(fn, part)
        return lambda state, batch: fetch(step(state, batch))

    return execute


def bring_home(tree: Any) -> Any:
    """The pytree with its arrays copied to the first device of this process."""
    return jax.device_put(fetch(tree), find_devices()[0])
