"""Factor rules of scatters: plain, and with add, sub, mul, min or max.

Factors are letters of dims that can be sharded. Dims that an update covers whole and
batching dims are parallel factors. A dim of the operand that is indexed element by
element is parallel too: each device subtracts the start of its chunk from the indices
and drops the updates of other chunks. Batch dims of indices are reductions: each device
scatters its share of the updates; only the first device starts from the operand, and
the others start from the operation's identity. A plain scatter has no such factors,
since the order of updates matters.

    table[V, E], ids[B, 1], grads[B, E] -> table'[V, E]    letters: ve, b-, be -> ve
"""

import math
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from meshwright.program.ir import Op, Value
from meshwright.program.ops.movement.gather import (
    IndexedDim,
    chunk_start,
    clamp_int32,
    dims_without,
    indexed_dims,
    is_wide,
    join_components,
    split_components,
    to_int32,
)
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import Factor, RuleFactors, can_sum
from meshwright.program.rules.registry import OpWork, Trait, describe, rule
from meshwright.program.rules.rule import FactorRule, OpCut


@dataclass(frozen=True, slots=True)
class _Combiner:
    """The operation by which a scatter combines updates with the operand.

    monoid: operation that combines the results of devices; `None` if the order of
        updates matters.
    neutral: number that replaces the operand on all devices but the first; `None` if
        every device may start from the operand, as for min and max.
    linear: sets of operands in which the scatter is jointly linear, as in `FactorRule`.
    """

    monoid: str | None
    neutral: int | None
    linear: tuple[frozenset[int], ...] = ()


_JOINTLY = (frozenset({0, 2}),)
_COMBINERS = {
    "scatter": _Combiner(None, None, _JOINTLY),
    "scatter-add": _Combiner("sum", 0, _JOINTLY),
    "scatter-sub": _Combiner("sum", 0, _JOINTLY),
    "scatter-mul": _Combiner("prod", 1, (frozenset({0}),)),
    "scatter-min": _Combiner("min", None),
    "scatter-max": _Combiner("max", None),
}


describe(
    *(kind for kind in _COMBINERS if kind != "scatter"),
    work=lambda op: OpWork(math.prod(op.operands[2].shape)),
)


@rule(*_COMBINERS, traits=(Trait.SCATTERS, Trait.EXPENSIVE))
def scatter(op: Op) -> FactorRule:
    """The factor rule of a scatter, for any dimension numbers.

    The docstring of this file explains it with an example.
    """
    combiner = _COMBINERS[op.kind]
    numbers: Any = op.params["dimension_numbers"]
    table, indices, updates = (a.shape for a in op.operands)
    factors = RuleFactors()
    where_batch = dims_without(len(updates), numbers.update_window_dims)
    into: list[Factor] = [()] * len(table)
    index: list[Factor] = [()] * len(indices)
    update: list[Factor] = [()] * len(updates)
    for dim, at in zip(
        numbers.operand_batching_dims,
        numbers.scatter_indices_batching_dims,
        strict=True,
    ):
        into[dim] = index[at] = update[where_batch[at]] = factors.one(table[dim])
    windows = [1] * len(table)
    for dim, at in zip(_window_dims(op), numbers.update_window_dims, strict=True):
        windows[dim] = updates[at]
        if updates[at] == table[dim]:
            into[dim] = update[at] = factors.one(table[dim])
    indexed = indexed_dims(
        factors, into, table, windows, numbers.scatter_dims_to_operand_dims
    )
    shares: list[int] = []
    if combiner.monoid is not None and can_sum(op.operands[0].dtype):
        for at, place in enumerate(where_batch):
            if at not in numbers.scatter_indices_batching_dims:
                index[at] = update[place] = factors.one(indices[at])
                shares.extend(index[at])
    special = {d.factor for d in indexed if d.factor is not None}
    special |= set(shares) if combiner.neutral is not None else set()
    return factors.rule(
        [tuple(into), tuple(index), tuple(update)],
        [tuple(into)],
        monoid=combiner.monoid or "sum",
        linear=combiner.linear if _is_linear(op) else (),
        special=frozenset(special),
        expand=partial(_expand, indexed, tuple(shares)) if special else None,
    )


def _window_dims(op: Op) -> tuple[int, ...]:
    """Operand dims that the updates also have, in order of `update_window_dims`."""
    numbers: Any = op.params["dimension_numbers"]
    dropped = (*numbers.inserted_window_dims, *numbers.operand_batching_dims)
    return dims_without(len(op.operands[0].shape), dropped)


def _is_linear(op: Op) -> bool:
    """Whether a scatter of partial sums gives partial sums of the scatter.

    `.at[].apply` with a user's function may not be linear.
    """
    if not can_sum(op.operands[0].dtype):
        return False
    return op.kind != "scatter" or op.params.get("update_jaxpr") is None


def _expand(
    indexed: tuple[IndexedDim, ...],
    shares: tuple[int, ...],
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """Scatter this device's share of the updates into its chunk of the operand."""
    into, indices, updates = operands
    params = dict(op.params)
    if any(dim.chunk(cut) is not None for dim in indexed):
        mode: Enum = params["mode"]
        clips = mode.name == "CLIP"
        indices = _moved_indices(indexed, clips, builder, indices, cut)
        params["mode"] = type(mode)["FILL_OR_DROP"]
    axes = tuple(axis for factor in shares for axis in cut.axes[factor])
    neutral = _COMBINERS[op.kind].neutral
    if axes and neutral is not None:
        first = builder.compare("eq", builder.axis_index(axes), 0)
        identity = builder.full(into.shape, neutral, into.dtype)
        into = builder.select(first, identity, into)
    return builder.apply(op, (into, indices, updates), (into.shape,), params)


def _moved_indices(
    indexed: tuple[IndexedDim, ...],
    clips: bool,
    builder: Builder,
    indices: Value,
    cut: OpCut,
) -> Value:
    """Indices relative to the starts of this device's chunks of the operand.

    Indices that are out of bounds stay out of bounds.
    """
    moved: list[Value] = []
    parts = split_components(builder, indices)
    for part, dim in zip(parts, indexed, strict=True):
        if clips:
            part = clamp_int32(builder, part, 0, dim.extent - dim.window)
        elif is_wide(part.dtype):
            part = clamp_int32(builder, part, -1, dim.extent)
        else:
            part = to_int32(builder, part)
        if dim.chunk(cut) is not None:
            part = builder.binary("sub", part, chunk_start(builder, dim, cut))
        moved.append(part)
    return join_components(builder, moved)
