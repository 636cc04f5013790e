"""Factor rules of ragged matrix products: groups of rows, with a matrix per group.

Letters of a rule are dims that can be sharded. There are three forms, by the role of
the left operand's ragged dim: free (`mk,gkn->mn`, experts of a mixture), contracted
(`mk,mn->gkn`, the gradient of the experts' weights), or batch (groups have no effect).
The third operand has the number of rows of each group.

If the ragged dim is split, a device has a window of the rows, and its group sizes are
the numbers of rows that are in the window. If groups are split, the rows before and
after the device's own groups form one more group at each end, whose matrix is zero or
whose result is dropped.
"""

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from meshwright.program.ir import Op, Value
from meshwright.program.ops.arithmetic.contraction import product_dims, product_linear
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import RuleFactors, can_sum, local_shape
from meshwright.program.rules.registry import OpWork, Trait, rule
from meshwright.program.rules.rule import Dims, FactorRule, OpCut


@dataclass(frozen=True, slots=True)
class _Ragged:
    """The factors of the ragged dim and of the groups in one op's factor rule.

    row: number of the factor of the ragged dim.
    group: number of the factor of the groups.
    group_dim: dim of the right operand that lists groups; `None` if the result's dim 0
        does.
    num_rows: extent of the ragged dim.
    result: factors of the result's dims.
    """

    row: int
    group: int
    group_dim: int | None
    num_rows: int
    result: Dims


def _work(op: Op) -> OpWork:
    """The operations of the products of each row with the matrix of its one group."""
    numbers = op.params["ragged_dot_dimension_numbers"]
    (contracted, _), _ = numbers.dot_dimension_numbers
    left, result = op.operands[0].shape, op.results[0].shape
    summed = math.prod(left[d] for d in contracted)
    is_ragged_sum = any(d in contracted for d in numbers.lhs_ragged_dimensions)
    num_elements = math.prod(result[1:] if is_ragged_sum else result)
    return OpWork(2 * num_elements * summed)


@rule("ragged_dot_general", traits=(Trait.CONTRACTION, Trait.EXPENSIVE), work=_work)
def ragged_dot_general(op: Op) -> FactorRule:
    """The factor rule `mk,gkn,-->mn`, `mk,mn,-->gkn` or `bmk,bkn,-->bmn`.

    Letters are dims that can be sharded: m lists rows, g groups. The third operand has
    the number of rows of each group.
    """
    numbers = op.params["ragged_dot_dimension_numbers"]
    (left_sum, _), (left_batch, _) = numbers.dot_dimension_numbers
    (ragged,) = numbers.lhs_ragged_dimensions
    groups: tuple[int, ...] = tuple(numbers.rhs_group_dimensions)
    factors = RuleFactors()
    is_summed = can_sum(op.results[0].dtype)
    left, right, result = product_dims(
        factors, op, numbers.dot_dimension_numbers, is_summed, groups
    )
    if ragged in left_batch or not is_summed or len(op.operands[2].shape) > 1:
        return _plain(
            factors, op, (left, right, result), (ragged, left_sum, left_batch)
        )
    ((group,),) = factors.each(op.operands[2].shape)
    (row,) = left[ragged]
    if groups:
        right = (*right[: groups[0]], (group,), *right[groups[0] + 1 :])
    else:
        result = ((group,), *result)
    num_rows = factors.sizes[row]
    where = _Ragged(row, group, groups[0] if groups else None, num_rows, result)
    return factors.rule(
        [left, right, ((),)],
        [result],
        linear=product_linear(op),
        special=frozenset({where.row, where.group}),
        expand=partial(_local_rows_and_groups, where),
    )


def _plain(
    factors: RuleFactors,
    op: Op,
    sides: tuple[Dims, Dims, Dims],
    roles: tuple[int, Any, Any],
) -> FactorRule:
    """The factor rule of a ragged product whose ragged dim and groups cannot be split.

    It applies if groups are a batch or have several sizes each.
    """
    left, right, result = sides
    ragged, left_sum, left_batch = roles
    dropped = left[ragged]
    left, right, result = (
        tuple(() if f == dropped else f for f in dims) for dims in (left, right, result)
    )
    is_sum, is_batch = ragged in left_sum, ragged in left_batch
    if len(op.operands[2].shape) > 1:
        free = [
            d for d in range(len(left)) if d not in left_sum and d not in left_batch
        ]
        order = list(left_sum) if is_sum else free
        before = order[: order.index(ragged)] if not is_batch else []
        batch = list(left_batch)
        prefix = batch[: batch.index(ragged)] if is_batch else batch + before
        sizes: Dims = (*(left[d] for d in prefix), ())
    else:
        sizes = ((),)
    result = ((), *result) if is_sum else result
    return factors.rule([left, right, sizes], [result], linear=product_linear(op))


def _local_rows_and_groups(
    where: _Ragged, builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
) -> tuple[Value, ...]:
    """The product over the rows and groups that this device has."""
    left, right, sizes = operands
    if cut.is_cut(where.row):
        sizes = _sizes_in_window(builder, sizes, where, cut)
    shape = local_shape(op.results[0].shape, where.result, cut)
    if not cut.is_cut(where.group):
        return builder.apply(op, (left, right, sizes), (shape,))
    sizes = _with_rest(builder, sizes, cut.axes[where.group])
    if where.group_dim is not None:
        # The first and the last matrix are zero: rows of other devices' groups.
        right = builder.pad_with_zeros(right, where.group_dim, 1)
        return builder.apply(op, (left, right, sizes), (shape,))
    wider = (shape[0] + 2, *shape[1:])
    (found,) = builder.apply(op, (left, right, sizes), (wider,))
    return (builder.slice(found, 0, 1, shape[0] + 1),)


def _sizes_in_window(
    builder: Builder, sizes: Value, where: _Ragged, cut: OpCut
) -> Value:
    """The number of rows of each group that this device has."""
    rows = where.num_rows // cut.parts[where.row]
    start = builder.binary("mul", builder.axis_index(cut.axes[where.row]), rows)
    sizes = builder.convert(sizes, "int32") if sizes.dtype != "int32" else sizes
    ends = _sums_up_to(builder, sizes)
    starts = builder.binary("sub", ends, sizes)
    start = builder.broadcast(start, sizes.shape, ())
    starts = builder.clamp(builder.binary("sub", starts, start), 0, rows)
    ends = builder.clamp(builder.binary("sub", ends, start), 0, rows)
    return builder.binary("sub", ends, starts)


def _sums_up_to(builder: Builder, sizes: Value) -> Value:
    """Cumulative sums of the group sizes, [n].

    They are computed by masking an [n, n] array, since the number of groups n is small.
    """
    (n,) = sizes.shape
    square = (n, n)
    is_past = builder.compare("le", builder.iota(square, 1), builder.iota(square, 0))
    terms = builder.broadcast(sizes, square, (1,))
    zeros = builder.full(square, 0, sizes.dtype)
    return builder.reduce(builder.select(is_past, zeros, terms), (1,))


def _with_rest(builder: Builder, sizes: Value, axes: tuple[str, ...]) -> Value:
    """The sizes of this device's groups, with one more group before and one after.

    The first counts the rows of all groups of devices before this one, the last those
    of devices after it.
    """
    local = builder.all_slice(sizes, 0, axes)
    (n,), (count,) = sizes.shape, local.shape
    first = builder.binary("mul", builder.axis_index(axes), count)
    index = builder.iota((n,), 0)
    first = builder.broadcast(first, (n,), ())
    is_before = builder.compare("lt", index, first)
    is_after = builder.compare("ge", index, builder.binary("add", first, count))
    zeros = builder.full((n,), 0, sizes.dtype)
    ends = [
        builder.reshape(builder.reduce(builder.select(m, zeros, sizes), (0,)), (1,))
        for m in (is_before, is_after)
    ]
    return builder.concatenate((ends[0], local, ends[1]), 0)
