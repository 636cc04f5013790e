"""Execution of device programs on this process's devices.

It also measures these devices and writes them as a machine description (`calibrate`).
"""

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
