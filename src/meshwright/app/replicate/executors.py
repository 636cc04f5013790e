"""Executors of replicas: devices of this process, or slices of a cluster."""

from collections.abc import Callable, Sequence
from typing import Any

import jax

from meshwright.app.partition import partition
from meshwright.app.replicate.crew import fetch
from meshwright.run.cluster.client import Slice
from meshwright.run.local import find_devices

Executor = Callable[[Callable[[Any, Any], Any]], Callable[[Any, Any], Any]]
"""From a function of state and batch to one that runs on a device and waits for results."""


def num_devices_for(replicas: int) -> int:
    """The most devices of this process among which the replicas can be divided."""
    found = len(find_devices())
    return max(n for n in range(1, min(found, replicas) + 1) if replicas % n == 0)


def on_devices(replicas: int, num_devices: int) -> list[Executor]:
    """An executor on a device of this process for each replica."""
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
    """An executor on each slice of a cluster; this process passes states and results on."""
    return [_on_slice(part) for part in slices]


def _on_slice(part: Slice) -> Executor:
    def execute(fn: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        step = partition(fn, part)
        return lambda state, batch: fetch(step(state, batch))

    return execute


def bring_home(tree: Any) -> Any:
    """The arrays of a pytree on the first device of this process."""
    return jax.device_put(fetch(tree), find_devices()[0])
