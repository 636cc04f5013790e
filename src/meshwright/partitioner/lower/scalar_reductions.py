"""Reductions of scalars over the same devices, combined into one all-reduce.

A step that takes the norm of each tensor would otherwise wait for one collective of a
few bytes per tensor. XLA also combines all-reduces (`AllReduceCombiner`), so that the
plan counts the collectives that really run.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from meshwright.machine import Mesh
from meshwright.partitioner.lower.lowered import Origin
from meshwright.partitioner.structure.parts import PartSource
from meshwright.program.ir import Atom, Op, Value
from meshwright.program.ops import COLLECTIVES, Builder
from meshwright.program.rewrite.combine_collectives import Combination, combine


def combine_scalar_reductions(
    ops: Iterable[Op], mesh: Mesh, origins: dict[Op, Origin]
) -> tuple[Op, ...]:
    """The ops, with all-reduces of scalars combined if none depends on another.

    Only ops on scalars move: behind the reductions they depend on, before the first
    other op that needs one. A combined all-reduce has the origin of its first part.
    """
    join_fn = partial(_joined, mesh, origins)
    how = Combination(partial(_key, mesh), _is_scalar, join_fn, lambda op: math.inf)
    return combine(ops, how)


def _key(mesh: Mesh, op: Op) -> object:
    """The key that all-reduces of scalars over devices must share to be combined.

    `None` for other ops, and for all-reduces over a loop in time.
    """
    if op.kind != "all_reduce" or mesh.sequential == op.params["axes"]:
        return None
    if not _is_one_element(op.operands[0]):
        return None
    part = op.source.part if isinstance(op.source, PartSource) else None
    return op.params["axes"], op.params["monoid"], op.results[0].dtype, part


def _is_scalar(op: Op) -> bool:
    """Whether an op only computes scalars from scalars, without communication."""
    if op.bodies or op.has_effect or op.kind in COLLECTIVES or not op.results:
        return False
    return all(map(_is_one_element, (*op.operands, *op.results)))


def _is_one_element(value: Atom) -> bool:
    return math.prod(value.shape) == 1


def _joined(mesh: Mesh, origins: dict[Op, Origin], group: Sequence[Op]) -> Sequence[Op]:
    """One all-reduce of a group's scalars, and slices that give the ops' results."""
    first = group[0]
    builder = Builder(mesh, source=first.source)
    rows = [builder.reshape(op.operands[0], (1,)) for op in group]
    joined = builder.concatenate(rows, 0)
    summed = Value(joined.shape, joined.dtype)
    combined = replace(first, operands=(joined,), results=(summed,))
    builder.ops.append(combined)
    origins[combined] = replace(origins[first], num_values=len(group))
    for i, op in enumerate(group):
        part = builder.slice(summed, 0, i, i + 1)
        builder.reshape(part, op.results[0].shape)
        builder.ops[-1] = replace(builder.ops[-1], results=op.results)
    return builder.ops
