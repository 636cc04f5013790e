"""Collectives over mesh axes of size 1 in a user's `shard_map`, as equivalent plain ops.

On one device a collective returns the elements of its operand in their order, and the
device's index is 0. So a program that was written for one device, with a mesh of size
1, can be partitioned as if it had no `shard_map`. If the mesh also has larger axes,
only those of size 1 are removed.
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from jax import lax
from jax.sharding import AbstractMesh, PartitionSpec

from meshwright.program.ir import Atom, Literal, Op, Value

_COLLECTIVES = frozenset(
    {
        "all_gather", "all_gather_invariant", "all_gather_reduced", "all_to_all",
        "axis_index", "pmax", "pmin", "ppermute", "psum", "psum_invariant",
        "reduce_scatter", "unreduced_psum", "unreduced_reduce_scatter",
    }
)  # fmt: skip


def single_axes(params: Mapping[str, Any]) -> frozenset[str]:
    """The axes of size 1 of a `shard_map` with these parameters."""
    return frozenset(name for name, size in params["mesh"].shape.items() if size == 1)


def is_on_one_device(eqn: Any) -> bool:
    """Whether an equation is a `shard_map` all of whose mesh axes have size 1."""
    if eqn.primitive.name != "shard_map":
        return False
    return len(single_axes(eqn.params)) == len(eqn.params["mesh"].shape)


def runs_on_one_device(eqn: Any, single: Collection[str]) -> bool:
    """Whether an equation is a collective all of whose mesh axes have size 1."""
    if not single or eqn.primitive.name not in _COLLECTIVES:
        return False
    return all(axis in single for axis in _names(eqn.params[_names_in(eqn.params)]))


def larger_axes(name: str, params: Mapping[str, Any], single: Collection[str]) -> Any:
    """The parameters of a collective or `shard_map`, without its axes of size 1."""
    if not single or name not in (*_COLLECTIVES, "shard_map"):
        return dict(params)
    if name != "shard_map":
        which = _names_in(params)
        kept = tuple(axis for axis in _names(params[which]) if axis not in single)
        return {**params, which: kept}
    mesh = {axis: n for axis, n in params["mesh"].shape.items() if axis not in single}
    specs = {
        which: tuple(_without(spec, single) for spec in params[which])
        for which in ("in_specs", "out_specs")
    }
    return {**params, **specs, "mesh": AbstractMesh(tuple(mesh.values()), tuple(mesh))}


def _names_in(params: Mapping[str, Any]) -> str:
    """The name of the parameter that holds the mesh axes of a collective."""
    return "axes" if "axes" in params else "axis_name"


def _names(axes: Any) -> tuple[Any, ...]:
    return axes if isinstance(axes, tuple) else (axes,)


def _without(spec: Any, single: Collection[str]) -> PartitionSpec:
    entries = (_names(entry) for entry in spec)
    return PartitionSpec(
        *(tuple(axis for axis in axes if axis not in single) for axes in entries)
    )


def as_on_one_device(
    eqn: Any, operands: tuple[Atom, ...], source: object
) -> tuple[list[Op], list[Atom]]:
    """Plain ops equivalent to a collective on one device, and their results."""
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
