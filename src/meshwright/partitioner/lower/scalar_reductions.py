"""Reductions of scalars over the same devices, combined into one all-reduce.

A step that takes the norm of each tensor would otherwise wait for one collective of a
few bytes per tensor. XLA also combines all-reduces (`AllReduceCombiner`), so that the
plan counts the collectives that really run.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from meshwright.machine import Mesh
from meshwright.partitioner.lower.lowered import Origin
from meshwright.partitioner.structure.parts import PartSource
from meshwright.program.ir import Atom, Op, Value
from meshwright.program.ops import COLLECTIVES, Builder


def combine_scalar_reductions(
    ops: Iterable[Op], mesh: Mesh, origins: dict[Op, Origin]
) -> tuple[Op, ...]:
    """The ops, with all-reduces of scalars combined if none depends on another.

    Only ops on scalars change their place: they are written after the reductions that
    they depend on, and all of them before the first other op that depends on one. A
    combined all-reduce has the origin of its first part.
    """
    pending = _Pending(mesh, origins)
    for op in ops:
        is_late = not pending.values.isdisjoint(op.operands)
        if is_late and not _is_scalar(op):
            pending.flush()
            is_late = False
        if is_late:
            pending.wait(op)
        elif _is_between_devices(op, mesh) and _is_one_element(op.operands[0]):
            pending.reduce(op)
        else:
            pending.done.append(op)
    pending.flush()
    return tuple(pending.done)


def _is_between_devices(op: Op, mesh: Mesh) -> bool:
    """Whether an op is an all-reduce that takes time; sums over a loop are additions."""
    return op.kind == "all_reduce" and mesh.sequential != op.params["axes"]


def _is_scalar(op: Op) -> bool:
    """Whether an op only computes scalars from scalars, without communication."""
    if op.bodies or op.has_effect or op.kind in COLLECTIVES or not op.results:
        return False
    return all(map(_is_one_element, (*op.operands, *op.results)))


def _is_one_element(value: Atom) -> bool:
    return math.prod(value.shape) == 1


@dataclass
class _Pending:
    """Ops in their new order, and ops that wait to be written.

    done: ops in their new order. values: results of the waiting ops. reductions:
    waiting all-reduces, by axes, monoid, dtype and part of a pipelined step. readers:
    waiting ops on scalars that depend on them, in order.
    """

    mesh: Mesh
    origins: dict[Op, Origin]
    done: list[Op] = field(default_factory=list)
    values: set[Atom] = field(default_factory=set)
    reductions: dict[object, list[Op]] = field(default_factory=dict)
    readers: list[Op] = field(default_factory=list)

    def reduce(self, op: Op) -> None:
        """Let an all-reduce wait, to be combined with later ones."""
        (value,) = op.results
        part = op.source.part if isinstance(op.source, PartSource) else None
        key = op.params["axes"], op.params["monoid"], value.dtype, part
        self.reductions.setdefault(key, []).append(op)
        self.values.add(value)

    def wait(self, op: Op) -> None:
        """Let an op wait that depends on a waiting op."""
        self.readers.append(op)
        self.values |= set(op.results)

    def flush(self) -> None:
        """Write all waiting ops."""
        for group in self.reductions.values():
            self.done += group if len(group) == 1 else self._combined(group)
        self.done += self.readers
        self.values.clear()
        self.reductions.clear()
        self.readers.clear()

    def _combined(self, group: list[Op]) -> list[Op]:
        """One all-reduce of a group's scalars, and slices that give the ops' results."""
        first = group[0]
        builder = Builder(self.mesh, source=first.source)
        rows = [builder.reshape(op.operands[0], (1,)) for op in group]
        joined = builder.concatenate(rows, 0)
        summed = Value(joined.shape, joined.dtype)
        combined = replace(first, operands=(joined,), results=(summed,))
        builder.ops.append(combined)
        self.origins[combined] = replace(self.origins[first], num_scalars=len(group))
        for i, op in enumerate(group):
            part = builder.slice(summed, 0, i, i + 1)
            builder.reshape(part, op.results[0].shape)
            builder.ops[-1] = replace(builder.ops[-1], results=op.results)
        return builder.ops
