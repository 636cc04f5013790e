"""Virtual devices: many CPU devices in one process, on which a plan can run."""

from __future__ import annotations

import jax


def use_virtual_devices(count: int) -> None:
    """Make JAX run on `count` virtual CPU devices, unless it has started already.

    JAX counts its devices at their first use; after that the number cannot change.
    """
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # JAX has started; `jax_mesh` says if the devices are too few
        return
    jax.config.update("jax_platforms", "cpu")
