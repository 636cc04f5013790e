"""The devices of this process, or the reason why JAX has none."""

import os
from typing import Any

import jax

from meshwright.errors import MeshError


def find_devices() -> list[Any]:
    """All devices that JAX sees; `MeshError` if it cannot start the wanted platforms."""
    try:
        return list(jax.devices())
    except (RuntimeError, AssertionError) as error:  # JAX asserts that one has started
        wanted = os.environ.get("JAX_PLATFORMS", "")
        why = f": {error}" if str(error) else ""
        raise MeshError(
            f"JAX cannot start a platform of JAX_PLATFORMS={wanted!r}{why}; set "
            "JAX_PLATFORMS=cpu to run on the processor, or install JAX for that platform"
        ) from error
