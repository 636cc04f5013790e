"""Layout assignment: copies of stacked arrays whose loops need different orders of dims.

XLA: `GpuLayoutAssignment`. A matrix product writes its dims in the order of its result.
It reads batched matrices only if the batch, the contracted and the other dims are each
adjacent. Values keep the order in which a product writes or reads them, through
transposes and elementwise ops. If the loop of the forward pass stacks a value in one
order, and the loop of the backward pass reads it in another, the whole stack is copied
in between.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from meshwright.predict.compilers.model.compilation import (
    Compilation,
    Origins,
    Rewrite,
)
from meshwright.predict.compilers.xla.shared_passes import assign_layouts
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait

Order = tuple[int, ...]
"""The order of a value's dims in memory, from the outermost to the innermost.

Only dims with more than one element are numbered. Dims of one element may be anywhere.
"""

COPY = "copy_p"


def assign_gpu_layouts(compilation: Compilation) -> Compilation:
    """Add the copies of `copy_between_orders`, then assign minor dims to all values."""
    return assign_layouts(Rewrite(copy_between_orders)(compilation))


def copy_between_orders(program: Program, origins: Origins) -> Program:
    """Copy a stacked array if the loop that reads it needs another order of dims.

    The order that counts is the one in which an earlier loop made the array.
    """
    made: dict[Atom, Order] = {}
    ops: list[Op] = []
    for op in program.ops:
        loop = origins.with_bodies(op, copy_between_orders)
        operands = list(loop.operands)
        for position, wanted in _stacked_orders(loop, is_result=False):
            operand = operands[position]
            if made.get(operand, wanted) != wanted:
                copy = Value(operand.shape, operand.dtype)
                ops.append(Op(COPY, (operand,), (copy,), source=op.source))
                operands[position] = copy
        if tuple(operands) != loop.operands:
            loop = origins.replace(loop, operands=tuple(operands))
        for position, order in _stacked_orders(loop, is_result=True):
            made[loop.results[position]] = order
        ops.append(loop)
    return program if tuple(ops) == program.ops else replace(program, ops=tuple(ops))


def _stacked_orders(op: Op, is_result: bool) -> list[tuple[int, Order]]:
    """Positions of a loop's stacked operands, with the order of dims in its body.

    is_result: take the stacked results instead of the stacked operands.
    """
    stacked = [wire for wire in op.wires if wire.is_stacked]
    if not stacked:
        return []
    orders = [dim_orders(body) for body in op.bodies]
    found: list[tuple[int, Order]] = []
    for wire in stacked:
        position = wire.result if is_result else wire.operand
        for body, i in wire.outputs if is_result else wire.inputs:
            program = op.bodies[body]
            inside = (program.outputs if is_result else program.inputs)[i]
            if position is not None and isinstance(inside, Value):
                order = orders[body].get(inside)
                found += [] if order is None else [(position, order)]
    return found


def dim_orders(body: Program) -> dict[Value, Order]:
    """The order of dims that matrix products require, by value of a loop body.

    The order in which a product must read a value has precedence over the order in
    which a product writes it. A value that no product constrains is missing.
    """
    orders: dict[Value, Order] = {}
    for op in reversed(body.ops):
        if op.kind == "dot_general":
            asked = ((v, _operand_order(op, i)) for i, v in enumerate(op.operands[:2]))
        else:
            known = [orders[r] for r in op.results if r in orders]
            asked = ((v, _through(op, known[0], v)) for v in op.operands if known)
        _add(orders, asked)
    for op in body.ops:
        if op.kind == "dot_general":
            given: Any = [(r, _as_written(r)) for r in op.results]
        else:
            given = [
                (r, _through(op, orders[v], v, is_forward=True))
                for v in op.operands
                if isinstance(v, Value) and v in orders
                for r in op.results
            ]
        _add(orders, given)
    for op in reversed(body.ops):
        known = [orders[r] for r in op.results if r in orders]
        if known and op.kind != "dot_general":
            _add(orders, ((v, _through(op, known[0], v)) for v in op.operands))
        elif op.kind == "dot_general":
            _add(orders, ((v, _as_written(v)) for v in op.operands[:2]))
    return orders


def _add(orders: dict[Value, Order], found: Any) -> None:
    """Record the orders of values that have none yet; skip pairs without an order."""
    for value, order in found:
        if isinstance(value, Value) and order is not None:
            orders.setdefault(value, order)


def _as_written(value: Atom) -> Order:
    return tuple(range(len(_extents(value))))


def _extents(value: Atom) -> tuple[int, ...]:
    return tuple(n for n in value.shape if n > 1)


def _through(
    op: Op, order: Order, operand: Atom, is_forward: bool = False
) -> Order | None:
    """The order of dims of an op's operand, given the order of its result.

    `None` if the op moves elements in another way than a transpose does.
    is_forward: compute the order of the result from the order of the operand instead.
    """
    (result, *others) = op.results
    if others or len(op.bodies):
        return None
    if op.kind == "transpose":
        permutation: Any = op.params["permutation"]
        kept = [d for d in permutation if operand.shape[d] > 1]
        moved = [sorted(kept).index(d) for d in kept]  # of the operand, by result's dim
        to_other = [moved.index(d) for d in range(len(kept))] if is_forward else moved
        return tuple(to_other[d] for d in order)
    is_kept = has_trait(op.kind, Trait.ELEMENTWISE) or has_trait(
        op.kind, Trait.ALIASES_OPERAND
    )
    return order if is_kept and _extents(operand) == _extents(result) else None


def _operand_order(op: Op, position: int) -> Order | None:
    """The order of dims in which a product must read an operand; `None` if any.

    Any order will do if there are no batch dims, or if the batch, the contracted and
    the other dims are each adjacent.
    """
    numbers: Any = op.params["dimension_numbers"]
    contracted, batch = (tuple(pair[position]) for pair in numbers)
    shape = op.operands[position].shape
    free = tuple(d for d in range(len(shape)) if d not in (*contracted, *batch))
    groups = (batch, contracted, free) if position else (batch, free, contracted)
    kept = [d for d in range(len(shape)) if shape[d] > 1]
    if not batch or all(
        _is_run([kept.index(d) for d in g if d in kept]) for g in groups
    ):
        return None
    return tuple(kept.index(d) for d in chain(*groups) if d in kept)


def _is_run(dims: Sequence[int]) -> bool:
    """Whether numbers of dims are consecutive and ascending."""
    return list(dims) == list(range(dims[0], dims[0] + len(dims))) if dims else True
