"""Ops with effects, which run once, on the first device of the mesh, on whole operands.

Lowering marks them by a parameter `mesh_axes`. Effects in a user's own `shard_map` have no
such parameter: there every device runs its own, as in JAX.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

from meshwright.program.ir import Op


def run_effect(op: Op, operands: list[Any]) -> list[Any]:
    """Results of an op with an effect, which one device runs and all devices receive."""
    primitive: Any = op.primitive
    axes = op.params["mesh_axes"]
    params = {k: v for k, v in op.params.items() if k != "mesh_axes"}

    def run(inputs: list[Any]) -> list[Any]:
        out = primitive.bind(*inputs, **params)
        return list(out) if primitive.multiple_results else [out]

    def skip(inputs: list[Any]) -> list[Any]:
        del inputs
        return [jnp.zeros(r.shape, r.dtype) for r in op.results]

    first = sum(lax.axis_index(a) for a in axes) == 0  # pyright: ignore[reportGeneralTypeIssues]
    results = lax.cond(first, run, skip, operands)
    return [lax.psum(r, axes) for r in results]
