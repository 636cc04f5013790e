"""Factor rules of ops that take slices of arrays, or join arrays.

In a rule such as `ab->a-`, letters (factors) are dims that can be sharded, and `-` is a dim
that cannot. A dim that the result has whole is a factor. A dim of which a part is taken, or
that joins several operands, is a factor too if parts of operands and result correspond:
devices exchange what their parts lack (`joined_slices.py`). Of a small slice, each device
contributes the elements that it has, and the sum over devices is the slice.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshwright.program.ir import Op, Value
from meshwright.program.ops.movement.exchange import join_parts
from meshwright.program.ops.movement.joined_slices import (
    Join,
    Piece,
    own_elements,
    slice_of,
)
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import (
    Factor,
    RuleFactors,
    can_sum,
    is_key,
)
from meshwright.program.rules.registry import Trait, rule
from meshwright.program.rules.rule import FactorRule, LocalParams, OpCut, Shape

_FIRST = (frozenset({0}),)

LARGE = 4
"""An operand is split with the result if it has at least this part, 1/4, of its elements.

Each device then sends its part of it in at most 4 permutes.
"""

SMALL = 16
"""A slice of at most 1/16 of a split dim is a sum over devices, not a gather."""

Joins = Mapping[int, tuple[int, Join]]
"""For each dim along which elements move, its factor and the join."""


def paired_dims(factors: RuleFactors, n: int, m: int) -> tuple[Factor, Factor]:
    """The factors of two dims that are split together; none without a common divisor.

    They share one factor, beside which each has one that is not split.
    """
    shared = math.gcd(n, m)
    if shared < 2:
        return (), ()
    factor = factors.one(shared)
    return (
        factor + factors.indivisible(n // shared),
        factor + factors.indivisible(m // shared),
    )


# -- slice ------------------------------------------------------------------------------


@rule("slice", traits=(Trait.MOVES, Trait.SLICES))
def slice_(op: Op) -> FactorRule:
    """The factor rule of a slice: `ab->ab`, with an exchange where b is sliced."""
    starts, limits = op.params["start_indices"], op.params["limit_indices"]
    strides = op.params["strides"] or (1,) * len(starts)
    return sliced_rule(
        op, list(zip(starts, limits, strides, strict=True)), _local_limits
    )


def sliced_rule(
    op: Op, taken: Sequence[tuple[int, int, int]], local_params: LocalParams
) -> FactorRule:
    """The factor rule of a slice of the first operand.

    taken: start, limit and stride of each dim. local_params: as in `FactorRule`, for a
        slice in which no dim is split that is sliced.
    """
    operand, (result,) = op.operands[0], op.results
    factors = RuleFactors()
    operand_dims: list[Factor] = []
    result_dims: list[Factor] = []
    joins: dict[int, tuple[int, Join]] = {}
    for d, (start, limit, stride) in enumerate(taken):
        n, m = operand.shape[d], result.shape[d]
        whole = (start, limit, stride) == (0, n, 1)
        # Parts begin at a multiple of the stride, and are sliced on each device.
        read, first = m * stride, start - start % stride
        join = Join(d, read, (n,), (Piece(0, first, 0, min(read, n - first)),))
        source, made = (), ()
        if whole:
            source = made = factors.one(n)
        elif m and not is_key(operand.dtype):
            source, made = sliced_dim(factors, n, m, stride, can_sum(operand.dtype))
        operand_dims.append(source)
        result_dims.append(made)
        if not whole and source:
            joins[d] = (source[0], join)
    return factors.rule(
        [tuple(operand_dims), *(() for _ in op.operands[1:])],
        [tuple(result_dims)],
        linear=_FIRST,
        special=frozenset(factor for factor, _ in joins.values()),
        local_params=local_params,
        expand=_Sliced(joins, tuple(result_dims), taken).expand,
    )


def sliced_dim(
    factors: RuleFactors, n: int, m: int, stride: int, can_add: bool
) -> tuple[Factor, Factor]:
    """The factors of a sliced dim in the operand and in the result.

    can_add: whether a small slice may be a sum over devices.
    """
    if m * stride * LARGE >= n:
        return paired_dims(factors, n, m)
    if stride == 1 and can_add and m * SMALL <= n:
        return factors.one(n), ()
    return (), ()


@dataclass(frozen=True, slots=True)
class _Sliced:
    """The expansion of a slice on one device.

    joins: the dims that are sliced. result: the factors of the result's dims.
    taken: start, limit and stride of each dim, on all devices together.
    """

    joins: Joins
    result: tuple[Factor, ...]
    taken: Sequence[tuple[int, int, int]]

    def expand(
        self, builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
    ) -> tuple[Value, ...]:
        """Exchange what the parts of split dims lack, then slice the other dims."""
        x, taken = operands[0], list(self.taken)
        for d, n in enumerate(op.operands[0].shape):
            if d not in self.joins:
                taken[d] = (0, x.shape[d], 1) if taken[d] == (0, n, 1) else taken[d]
                continue
            factor, join = self.joins[d]
            if not cut.is_cut(factor):
                continue
            axes, (start, _, stride) = cut.axes[factor], taken[d]
            if self.result[d]:
                (x,) = join_parts(builder, (x,), (join,), axes, (True,))
            else:
                x = own_elements(builder, x, join, axes)
            taken[d] = (start % stride, x.shape[d], stride)
        return (_local_slice(builder, op, x, taken),)


def _local_slice(
    builder: Builder, op: Op, x: Value, taken: Sequence[tuple[int, int, int]]
) -> Value:
    """A slice of what this device has; `taken` has start, limit and stride per dim."""
    left = list(taken)
    for d, (start, limit, stride) in enumerate(taken):
        if stride == 1:
            x = slice_of(builder, x, d, start, limit - start)
            left[d] = (0, x.shape[d], 1)
    if all(stride == 1 for _, _, stride in left):
        return x
    starts, limits, strides = zip(*left, strict=True)
    shape = tuple(-((start - limit) // stride) for start, limit, stride in left)
    params = {
        **op.params, "start_indices": starts, "limit_indices": limits, "strides": strides
    }  # fmt: skip
    return builder.apply(op, (x,), [shape], params)[0]


def _local_limits(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    """A slice's parameters on one device: limits that are the local extents.

    Only the limits of dims that are taken whole change.
    """
    del results
    limits = zip(
        op.params["limit_indices"], op.operands[0].shape, operands[0], strict=True
    )
    local = tuple(here if here != n else limit for limit, n, here in limits)
    return {**op.params, "limit_indices": local}
