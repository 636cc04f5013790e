"""The part of an op that one device computes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from meshwright.partitioner.propagate import Node
from meshwright.program.ir import Atom, Op, Value
from meshwright.program.ops import OpCut
from meshwright.program.rules.factors import local_shape
from meshwright.program.rules.rule import Dims


def local_op(node: Node, cut: OpCut) -> Op:
    """The op of a node on the shapes of one device."""
    op, rule = node.op, node.rule
    assert op is not None
    assert rule is not None
    if all(parts == 1 for parts in cut.parts):
        return op
    operands = local_atoms(op.operands, rule.operands, cut)
    results = local_atoms(op.results, rule.results, cut)
    params = op.params
    if rule.local_params is not None:
        shapes = tuple(o.shape for o in operands), tuple(r.shape for r in results)
        params = rule.local_params(op, *shapes)
    return replace(op, operands=operands, results=results, params=params)  # pyright: ignore[reportArgumentType]


def local_atoms(
    atoms: Sequence[Atom], sides: Sequence[Dims], cut: OpCut
) -> tuple[Atom, ...]:
    """New values with the shapes of one device; literals stay as they are."""
    return tuple(
        Value(local_shape(a.shape, dims, cut), a.dtype) if isinstance(a, Value) else a
        for a, dims in zip(atoms, sides, strict=True)
    )


def accessed_values(op: Op, node: Node) -> Iterator[tuple[Value, Dims]]:
    """Each value that an op reads or writes, once, with the factors of its dims."""
    assert node.rule is not None
    sides = (op.operands, node.rule.operands), (op.results, node.rule.results)
    seen: set[Value] = set()
    for atoms, side in sides:
        for atom, dims in zip(atoms, side, strict=True):
            if isinstance(atom, Value) and atom not in seen:
                seen.add(atom)
                yield atom, dims
