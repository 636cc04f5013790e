"""Checks results for NaN and infinity, as `jax_debug_nans` and `jax_debug_infs` ask.

JAX's own check reads an array in one process, which has not all parts of it here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from meshwright.errors import ClusterError

_FINDERS: dict[str, Callable[[Any], Any]] = {"nan": jnp.isnan, "inf": jnp.isinf}


def require_allowed(results: Sequence[Any], forbids: Sequence[str], mesh: Mesh) -> None:
    """Raise `ClusterError` on all processes of a mesh if a result has a forbidden number.

    forbids: "nan", "inf" or both.
    """
    floats = [
        (i, r) for i, r in enumerate(results) if jnp.issubdtype(r.dtype, jnp.inexact)
    ]
    for kind in forbids if floats else ():

        def has_some(arrays: Sequence[Any], kind: str = kind) -> Any:
            return jnp.stack([_FINDERS[kind](each).any() for each in arrays])

        everywhere = NamedSharding(mesh, PartitionSpec())
        found = jax.jit(has_some, out_shardings=everywhere)([r for _, r in floats])
        for (i, result), is_there in zip(floats, np.asarray(found), strict=True):
            if is_there:
                raise ClusterError(
                    f"result {i}, {result.dtype}{list(result.shape)}, holds {kind}, which "
                    f"jax_debug_{kind}s of the client forbids"
                )
