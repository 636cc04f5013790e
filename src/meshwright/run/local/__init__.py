"""Execution of device programs on this process's devices, and their calibration."""

from meshwright.run.local.devices import find_devices
from meshwright.run.local.spmd import (
    Executable,
    jax_mesh,
    make_executable,
    named_shardings,
)

__all__ = [
    "Executable",
    "find_devices",
    "jax_mesh",
    "make_executable",
    "named_shardings",
]
