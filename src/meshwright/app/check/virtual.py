"""Virtual devices: many CPU devices in one process, to try a plan on."""

from __future__ import annotations

import jax


def use_virtual_devices(count: int) -> None:
    """Make JAX run on `count` virtual CPU devices, unless it has started already.

    JAX finds its devices when they are first asked for; after that their number stands.
    """
    try:
        jax.config.update("jax_num_cpu_devices", count)
    except RuntimeError:  # the devices are there: `jax_mesh` says if they are too few
        return
    jax.config.update("jax_platforms", "cpu")
