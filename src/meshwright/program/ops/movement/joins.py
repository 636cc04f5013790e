"""Factor rules of ops that join arrays along a dim, or take one apart.

Letters are dims that can be sharded, `-` is a dim that cannot.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from meshwright.program.ir import Literal, Op, Value
from meshwright.program.ops.movement.exchange import join_parts
from meshwright.program.ops.movement.joined_slices import (
    Join,
    Piece,
    join_whole,
    own_elements,
)
from meshwright.program.ops.movement.slices import LARGE, paired_dims, sliced_dim
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import (
    Factor,
    RuleFactors,
    all_operands,
    can_sum,
    is_key,
    same_dims_rule,
)
from meshwright.program.rules.registry import Trait, rule
from meshwright.program.rules.rule import FactorRule, OpCut, Shape

_FIRST = (frozenset({0}),)

MOST_MINOR = 8
"""Dims of several values correspond if they are at most 8 times their common divisor.

Parts of other dims begin at other places on each device.
"""


def common_dims(
    factors: RuleFactors, size: int, extents: Sequence[int]
) -> tuple[Factor, list[Factor]] | None:
    """The factors of a joined dim in the result and in each operand.

    They share one factor, beside which each has one that is not split. Small operands
    have none. `None` if there is no common divisor.
    """
    large = [n for n in extents if n * LARGE >= size]
    shared = math.gcd(size, *large) if large else 0
    if shared < 2 or max(size, *large) > MOST_MINOR * shared:
        return None
    factor = factors.one(shared)
    return factor + factors.indivisible(size // shared), [
        factor + factors.indivisible(n // shared) if n * LARGE >= size else ()
        for n in extents
    ]


@rule("concatenate", traits=(Trait.MOVES, Trait.JOINS))
def concatenate(op: Op) -> FactorRule:
    """The factor rule `a-,a-->a-`: dim a can be sharded, the joined dim `-` cannot.

    If all large operands are split along it, `rewrite/even_dims.py` writes the op as
    `joined_slices`, which can. So a weight that is split does not split what others join.
    """
    joined = (int(op.params["dimension"]),) if len(op.operands) > 1 else ()
    return same_dims_rule(op, joined, linear=all_operands(op))


@rule("joined_slices", traits=(Trait.MOVES, Trait.JOINS, Trait.SLICES))
def joined_slices(op: Op) -> FactorRule:
    """The factor rule of slices of arrays, joined along a dim, as rewrites write them.

    No primitive computes it: `join_whole` writes it as slices and a concatenation.
    """
    join: Join = op.params["join"]
    factors = RuleFactors()
    if len(join.extents) > 1:
        found = common_dims(factors, join.size, join.extents)
        none: list[Factor] = [()] * len(join.extents)
        made, sources = found or (factors.one(join.size), none)
    else:
        can_add = (
            can_sum(op.results[0].dtype) and not join.has_gap and len(join.pieces) == 1
        )
        n = max(join.extents)  # the only one
        source, made = _resized_dim(factors, n, join.size, can_add)
        sources = [source]
    num = len(join.extents)
    is_linear = not op.params["fill"] and len(op.operands) == num
    dims = factors.each(op.results[0].shape, (join.dim,))

    def with_dim(factor: Factor) -> tuple[Factor, ...]:
        return (*dims[: join.dim], factor, *dims[join.dim + 1 :])

    shared = made or next((source for source in sources if source), ())
    return factors.rule(
        [*map(with_dim, sources), *(() for _ in op.operands[num:])],
        [with_dim(made)],
        linear=(frozenset(range(num)),) if is_linear else (),
        special=frozenset(shared[:1]),
        expand=_Joined(join, made, tuple(sources)).expand,
        is_composite=True,
    )


def _resized_dim(
    factors: RuleFactors, n: int, m: int, can_add: bool
) -> tuple[Factor, Factor]:
    """The factors of a dim of `n` elements of which a dim of `m` is made."""
    if m * LARGE >= n and n * LARGE >= m:
        found = paired_dims(factors, n, m)
        return found if found[0] else ((), factors.one(m))
    if m < n:
        return sliced_dim(factors, n, m, 1, can_add)
    return (), factors.one(m)


@dataclass(frozen=True, slots=True)
class _Joined:
    """The expansion of a join on one device.

    made, sources: the factors of the joined dim in the result and in the operands.
    """

    join: Join
    made: Factor
    sources: tuple[Factor, ...]

    def expand(
        self, builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
    ) -> tuple[Value, ...]:
        """This device's part of a joined array."""
        num, made = len(self.sources), self.made
        arrays, rest = operands[:num], operands[num:]
        fill = Literal(op.params["fill"], arrays[0].dtype)
        join = replace(self.join, fill=rest[0] if rest else fill)
        if made and cut.is_cut(made[0]):
            is_cut = tuple(map(bool, self.sources))
            return join_parts(builder, arrays, (join,), cut.axes[made[0]], is_cut)
        source = self.sources[0]
        if source and not made and cut.is_cut(source[0]):
            return (own_elements(builder, arrays[0], join, cut.axes[source[0]]),)
        return (join_whole(builder, arrays, join),)


@rule("split", traits=(Trait.MOVES, Trait.SLICES))
def split(op: Op) -> FactorRule:
    """The factor rule `ab->ab,ab`, with an exchange where b is taken apart."""
    factors = RuleFactors()
    axis = int(op.params["axis"])
    (operand,) = op.operands
    n, sizes = operand.shape[axis], [r.shape[axis] for r in op.results]
    dims = factors.each(operand.shape, (axis,))
    source: Factor = ()
    made: list[Factor] = [()] * len(sizes)
    if len(sizes) == 1:
        source = factors.one(n)
        made = [source]
    elif min(sizes) and LARGE * max(sizes) >= n and not is_key(operand.dtype):
        shared = math.gcd(*sizes)
        if shared > 1 and n <= MOST_MINOR * shared:
            factor = factors.one(shared)
            source = factor + factors.indivisible(n // shared)
            made = [factor + factors.indivisible(size // shared) for size in sizes]
    return factors.rule(
        [(*dims[:axis], source, *dims[axis + 1 :])],
        [(*dims[:axis], each, *dims[axis + 1 :]) for each in made],
        linear=_FIRST,
        special=frozenset(source[:1]) if len(sizes) > 1 else frozenset(),
        local_params=_local_sizes,
        expand=partial(_split_parts, source),
    )


def _split_parts(
    source: Factor,
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """This device's part of each result of a split along a dim that is cut."""
    axis = int(op.params["axis"])
    n, start = op.operands[0].shape[axis], 0
    joins: list[Join] = []
    for result in op.results:
        size = result.shape[axis]
        joins.append(Join(axis, size, (n,), (Piece(0, start, 0, size),)))
        start += size
    return join_parts(builder, operands, joins, cut.axes[source[0]], (True,))


def _local_sizes(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    del operands
    return {**op.params, "sizes": tuple(r[op.params["axis"]] for r in results)}
