"""Gather: batch dims of indices, whole windows and batching dims are parallel factors.

A dim that is indexed element by element, such as the vocabulary of an embedding table, is
a reduction. The device whose chunk has an index gathers the row, all others contribute
zeros, and the sum over devices is the row. No part of the table is moved.

    table[V, E], ids[B, 1] -> rows[B, E]        letters: ve, b- -> be; v is special
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Protocol, cast

from meshwright.program.ir import Op, Value
from meshwright.program.ops.movement.indexing import (
    INT32_MAX,
    IndexedDim,
    all_true,
    batch_positions,
    chunk_start,
    clamp_int32,
    is_wide,
    join_components,
    split_components,
    to_int32,
)
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import Factor, RuleFactors, can_sum
from meshwright.program.rules.registry import Trait, rule
from meshwright.program.rules.rule import FactorRule, OpCut, Shape


class _Numbers(Protocol):
    """The fields of `jax.lax.GatherDimensionNumbers` that are read here."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...]
    start_indices_batching_dims: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Gather:
    """The parameters of one gather.

    windows: operand dims that the result has, in the order of `offset_dims`.
    """

    numbers: _Numbers
    sizes: tuple[int, ...]
    fills: bool
    fill_value: object
    windows: tuple[int, ...]


def _read(op: Op) -> _Gather:
    numbers = cast(_Numbers, op.params["dimension_numbers"])
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    return _Gather(
        numbers,
        cast(tuple[int, ...], op.params["slice_sizes"]),
        cast(Enum, op.params["mode"]).name == "FILL_OR_DROP",
        op.params["fill_value"],
        tuple(d for d in range(len(op.operands[0].shape)) if d not in dropped),
    )


@rule(
    "gather",
    traits=(Trait.MOVES, Trait.READS_AT_INDEX, Trait.STANDALONE, Trait.EXPENSIVE),
)
def gather(op: Op) -> FactorRule:
    """The rule of a gather with any dimension numbers."""
    read = _read(op)
    operand, indices = (a.shape for a in op.operands)
    factors = RuleFactors()
    batch = factors.each(indices[:-1])
    table: list[Factor] = [()] * len(operand)
    for dim, where in zip(
        read.numbers.operand_batching_dims,
        read.numbers.start_indices_batching_dims,
        strict=True,
    ):
        table[dim] = batch[where] if read.sizes[dim] == 1 else ()
    result: list[Factor] = [()] * len(op.results[0].shape)
    for where, dim in zip(read.numbers.offset_dims, read.windows, strict=True):
        if read.sizes[dim] == operand[dim]:
            table[dim] = result[where] = factors.one(operand[dim])
    places = batch_positions(len(result), read.numbers.offset_dims)
    for where, factor in zip(places, batch, strict=True):
        result[where] = factor
    indexed = _indexed_dims(op, read, factors, table)
    special = frozenset(d.factor for d in indexed if d.factor is not None)
    return factors.rule(
        [tuple(table), (*batch, ())],
        [tuple(result)],
        monoid="or" if op.operands[0].dtype == "bool" else "sum",
        linear=(frozenset({0}),) if _is_linear(op, read) else (),
        special=special,
        local_params=_local_params,
        expand=partial(_expand, indexed, places) if special else None,
    )


def _indexed_dims(
    op: Op, read: _Gather, factors: RuleFactors, table: list[Factor]
) -> tuple[IndexedDim, ...]:
    """The components of the index vector; assigns factors to dims indexed by elements."""
    operand = op.operands[0]
    is_summed = operand.dtype == "bool" or can_sum(operand.dtype)
    is_summed &= max(operand.shape, default=0) <= INT32_MAX
    found: list[IndexedDim] = []
    for dim in read.numbers.start_index_map:
        extent, window = operand.shape[dim], read.sizes[dim]
        factor = None
        if is_summed and window == 1 and extent > 1:
            table[dim] = factors.one(extent)
            factor = table[dim][0]
        found.append(IndexedDim(extent, window, factor))
    return tuple(found)


def _is_linear(op: Op, read: _Gather) -> bool:
    """Linear if partial sums of the fill value are the fill value: 0 and NaN are."""
    if not can_sum(op.operands[0].dtype):
        return False
    fill = cast(complex, read.fill_value)
    return not read.fills or bool(fill == 0) or bool(fill != fill)


def _local_params(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    """Parameters with the local extent of dims that a window takes whole."""
    del results
    read = _read(op)
    sizes = list(read.sizes)
    for dim in read.windows:
        if sizes[dim] == op.operands[0].shape[dim]:
            sizes[dim] = operands[0][dim]
    return {**op.params, "slice_sizes": tuple(sizes)}


def _expand(
    indexed: tuple[IndexedDim, ...],
    places: tuple[int, ...],
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """Gather the rows that this device's chunks have, with zeros for the others.

    An index out of bounds is assigned to the nearest chunk, whose device clamps it or
    fills the row, as the mode says; so exactly one device contributes.
    """
    table, indices = operands
    read = _read(op)
    moved: list[Value] = []
    owned: list[Value] = []
    parts = split_components(builder, indices)
    for part, dim in zip(parts, indexed, strict=True):
        if is_wide(part.dtype) and not read.fills:
            index = clamp_int32(builder, part, 0, dim.extent - dim.window)
        else:
            index = to_int32(builder, part)
        if dim.chunk(cut) is not None:
            owned.append(_owns(builder, index, dim, cut))
            index = builder.binary("sub", index, chunk_start(builder, dim, cut))
        moved.append(index)
    params = _local_params(op, (table.shape, indices.shape), ())
    rows = builder.apply(
        op,
        (table, join_components(builder, moved)),
        (_result_shape(op, indices.shape, params),),
        params,
    )[0]
    mask = builder.reshape(all_true(builder, owned), indices.shape[:-1])
    mask = builder.broadcast(mask, rows.shape, places)
    zeros = builder.full(rows.shape, 0, rows.dtype)
    return (builder.select(mask, zeros, rows),)


def _owns(builder: Builder, index: Value, dim: IndexedDim, cut: OpCut) -> Value:
    """Whether the nearest index in bounds is in this device's chunk, [..., 1] bools."""
    nearest = builder.clamp(index, 0, dim.extent - 1)
    offset = builder.binary("sub", nearest, chunk_start(builder, dim, cut))
    above = builder.compare("ge", offset, 0)
    below = builder.compare("lt", offset, dim.chunk(cut) or 0)
    return builder.binary("and", above, below)


def _result_shape(op: Op, indices: Shape, params: Mapping[str, object]) -> Shape:
    read = _read(op)
    sizes = cast(tuple[int, ...], params["slice_sizes"])
    shape = [0] * len(op.results[0].shape)
    for where, dim in zip(read.numbers.offset_dims, read.windows, strict=True):
        shape[where] = sizes[dim]
    places = batch_positions(len(shape), read.numbers.offset_dims)
    for where, extent in zip(places, indices[:-1], strict=True):
        shape[where] = extent
    return tuple(shape)
