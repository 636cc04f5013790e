"""Combination of small collectives: several of one kind become one on joined operands.

Each collective takes at least the latency of the links, however small it is. XLA
combines all-reduces (`AllReduceCombiner`); on CPU devices it leaves reduce-scatters and
all-gathers apart. Data-parallel training calls the combined gradients buckets (Li et
al., "PyTorch Distributed", VLDB 2020).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from meshwright.machine import Mesh
from meshwright.partitioner.lower.lowered import Lowered, Origin, with_bodies
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import COLLECTIVES, Builder, Trait, has_trait
from meshwright.program.rewrite.combine_collectives import (
    Combination,
    Direction,
    combine,
)

type Limits = Mapping[tuple[str, ...], int]
"""Bytes up to which collectives over some mesh axes are combined, by axes."""

_KINDS = ("all_reduce", "reduce_scatter", "all_gather")


def combine_collectives(lowered: Lowered, limits: Limits) -> Lowered:
    """The device program with small collectives over the same devices combined.

    Reductions wait for later ones, up to the first op that needs one of them and is more
    than elementwise; gathers move up to earlier ones in the same way. A combined
    collective has the origin of its first part.
    """
    if not limits:
        return lowered
    origins = dict(lowered.origins)

    def join(group: Sequence[Op]) -> Sequence[Op]:
        return _joined(group, lowered.mesh, origins)

    def limit(op: Op) -> int:
        axes = op.params["axes"]
        return limits.get(axes, 0)  # pyright: ignore[reportCallIssue, reportArgumentType]

    def key(op: Op) -> object:
        return _key(op) if op.kind in _KINDS and limit(op) else None

    forward = Combination(key, _is_cheap, join, limit)
    backward = replace(
        forward, key_fn=lambda op: key(op) if op.kind == "all_gather" else None
    )

    def rewritten(program: Program) -> Program:
        ops = combine(program.ops, forward)
        ops = combine(ops, backward, Direction.BACKWARD)
        return replace(program, ops=tuple(with_bodies(op, rewritten) for op in ops))

    return replace(lowered, program=rewritten(lowered.program), origins=origins)


def _key(op: Op) -> object:
    """The key that collectives must share to be combined; `None` for odd dtypes."""
    dtype = op.results[0].dtype
    if not dtype.startswith(("float", "bfloat", "int", "uint")):
        return None
    return op.kind, op.params["axes"], op.params.get("monoid"), dtype


def _is_cheap(op: Op) -> bool:
    """Whether collectives may move past an op: no effect, body, collective, product."""
    if op.bodies or op.has_effect or op.kind in COLLECTIVES or not op.results:
        return False
    return not any(has_trait(op.kind, t) for t in (Trait.CONTRACTION, Trait.STANDALONE))


def _joined(group: Sequence[Op], mesh: Mesh, origins: dict[Op, Origin]) -> Sequence[Op]:
    """The ops that replace a group of collectives: a joint one, and its slices."""
    first = group[0]
    axes = first.params["axes"]
    assert isinstance(axes, tuple)
    builder = Builder(mesh, source=first.source, reason=str(first.params["reason"]))
    parts, count = mesh.size(axes), len(group)
    rows = [_rows(builder, op, parts) for op in group]
    joined = builder.concatenate(rows, 1)
    if first.kind == "all_reduce":
        made = builder.all_reduce(joined, axes, str(first.params["monoid"]))
    elif first.kind == "reduce_scatter":
        made = builder.reduce_scatter(joined, 0, axes, str(first.params["monoid"]))
    else:
        made = builder.all_gather(joined, 0, axes)
    others = tuple(origins[op].value for op in group[1:])
    origin = replace(origins[first], num_values=count, others=others)
    origins[builder.ops[-1]] = origin
    columns = builder.columns(made, [row.shape[1] for row in rows])
    for op, part in zip(group, columns, strict=True):
        _result(builder, part, op, parts)
        builder.ops[-1] = replace(builder.ops[-1], results=op.results)
    return builder.ops


def _rows(builder: Builder, op: Op, parts: int) -> Value:
    """A collective's operand as a matrix, one row per device that gets a part."""
    (x,) = op.operands
    if op.kind != "reduce_scatter":
        return builder.reshape(x, (1, math.prod(x.shape)))
    before = _before(op, x)
    cut = builder.reshape(x, (before, parts, math.prod(x.shape) // (before * parts)))
    if before > 1:
        cut = builder.transpose(cut, (1, 0, 2))
    return builder.reshape(cut, (parts, math.prod(x.shape) // parts))


def _result(builder: Builder, part: Value, op: Op, parts: int) -> Value:
    """One collective's result, from its columns of the combined collective's result."""
    (result,) = op.results
    if op.kind == "all_gather":
        before = _before(op, result)
        if before > 1:
            inner = part.shape[1] // before
            part = builder.reshape(part, (parts, before, inner))
            part = builder.transpose(part, (1, 0, 2))
    return builder.reshape(part, result.shape)


def _before(op: Op, whole: Atom) -> int:
    """Number of elements of the dims before the one scattered or gathered."""
    dim = op.params["dim"]
    assert isinstance(dim, int)
    return math.prod(whole.shape[:dim])
