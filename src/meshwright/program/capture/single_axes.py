"""Collectives over mesh axes of size 1 in a user's `shard_map`, as the ops they equal.

On one device a collective returns the elements of its operand in their order, and the
device's index is 0. So a program that was written for one device, with a mesh of size 1,
can be partitioned as if its `shard_map` were not there.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
from jax import lax

from meshwright.program.ir import Atom, Literal, Op, Value

_COLLECTIVES = frozenset(
    {
        "all_gather", "all_gather_invariant", "all_gather_reduced", "all_to_all",
        "axis_index", "pmax", "pmin", "ppermute", "psum", "psum_invariant",
        "reduce_scatter", "unreduced_psum", "unreduced_reduce_scatter",
    }
)  # fmt: skip


def single_axes(eqn: Any) -> frozenset[str] | None:
    """The axes of a `shard_map` if all are of size 1; `None` for other equations."""
    if eqn.primitive.name != "shard_map":
        return None
    sizes = eqn.params["mesh"].shape
    return frozenset(sizes) if all(size == 1 for size in sizes.values()) else None


def runs_on_one_device(eqn: Any, single: Collection[str]) -> bool:
    """Whether an equation is a collective, all of whose axes are of size 1."""
    if not single or eqn.primitive.name not in _COLLECTIVES:
        return False
    axes = eqn.params.get("axes", eqn.params.get("axis_name"))
    return all(
        axis in single for axis in (axes if isinstance(axes, tuple) else (axes,))
    )


def as_on_one_device(
    eqn: Any, operands: tuple[Atom, ...], source: object
) -> tuple[list[Op], list[Atom]]:
    """The ops and the results of a collective that runs on one device."""
    if eqn.primitive.name == "axis_index":
        return [], [Literal(np.int32(0), "int32")]
    ops: list[Op] = []
    results: list[Atom] = []
    for operand, var in zip(operands, eqn.outvars, strict=True):
        shape = tuple(var.aval.shape)
        if eqn.params.get("perm") == ():  # no device sends, so that all receive zeros
            zero = Literal(np.zeros((), operand.dtype)[()], operand.dtype)
            params = {"shape": shape, "broadcast_dimensions": (), "sharding": None}
            ops.append(_op(lax.broadcast_in_dim_p, zero, shape, params, source))
            results += ops[-1].results
        elif shape == operand.shape:
            results.append(operand)
        else:
            params = {"new_sizes": shape, "dimensions": None, "sharding": None}
            ops.append(_op(lax.reshape_p, operand, shape, params, source))
            results += ops[-1].results
    return ops, results


def _op(
    primitive: Any,
    operand: Atom,
    shape: tuple[int, ...],
    params: dict[str, Any],
    source: object,
) -> Op:
    result = Value(shape, operand.dtype)
    return Op(primitive.name, (operand,), (result,), params, (), source, primitive)
