"""Execution of device programs on this process's devices, and their calibration."""

from meshwright.run.local.spmd import (
    Executable,
    jax_mesh,
    make_executable,
    named_shardings,
)

__all__ = [
    "Executable",
    "jax_mesh",
    "make_executable",
    "named_shardings",
]
