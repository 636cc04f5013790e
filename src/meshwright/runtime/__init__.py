"""Executes device programs on this process's devices."""

from meshwright.runtime.spmd import (
    jax_mesh,
    named_shardings,
    partition_spec,
    place,
    spmd_function,
)

__all__ = ["jax_mesh", "named_shardings", "partition_spec", "place", "spmd_function"]
