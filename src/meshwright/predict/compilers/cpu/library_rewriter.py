"""Library rewriter: the operand layouts and fused results that CPU libraries work with.

XLA: `LibraryRewriter`, with the copies of `LayoutAssignment`. Products and convolutions
read operands in one order of dims, so other operands are copied first. They write the
result of a following transpose or conversion directly. A scatter into zeros that is then
added to something scatters into that instead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshwright.predict.compilers.hlo.compilation import Origins
from meshwright.predict.compilers.hlo.fusion import is_zeros
from meshwright.program.ir import Atom, Op, Program, Value


def rewrite_for_libraries(program: Program, origins: Origins) -> Program:
    """The program with copies of operands, and with results fused into products."""
    scope = _Scope(program)
    ops: list[Op] = []
    for op in program.ops:
        if op in scope.dropped:
            continue
        made = scope.replaced.get(op, op)
        operands: list[Atom] = list(made.operands)
        for position in _misplaced(made, scope.producers):
            operand = operands[position]
            copy = Value(operand.shape, operand.dtype)
            ops.append(Op("copy_p", (operand,), (copy,), source=op.source))
            operands[position] = copy
        if tuple(operands) != made.operands:
            made = replace(made, operands=tuple(operands))
        made = origins.with_bodies(made, rewrite_for_libraries)
        if made is not op:
            origins[made] = origins.get(op, op)
        ops.append(made)
    return replace(program, ops=tuple(ops))


class _Scope:
    """Producers and reader counts of one program's values, and the ops that change.

    replaced: by op, the op in its place. dropped: ops whose work another op does.
    """

    def __init__(self, program: Program) -> None:
        self.producers = {result: op for op in program.ops for result in op.results}
        self.readers: Counter[Atom] = Counter(program.outputs)
        self.readers.update(v for op in program.ops for v in op.operands)
        self.replaced: dict[Op, Op] = {}
        self.dropped: set[Op] = set()
        for op in program.ops:
            if op.kind == "transpose":
                producer = self.only(op.operands[0])
                if producer is not None and _can_write(producer, op):
                    # The product exchanges its operands and writes the transpose.
                    self.replaced[op] = replace(op, kind="reshape")
            elif op.kind == "convert_element_type":
                producer = self.only(op.operands[0])
                if producer is not None and producer.kind == "dot_general":
                    self.replaced[op] = replace(producer, results=op.results)
                    self.dropped.add(producer)
            elif op.kind in {"add", "add_any"}:
                self._start_scatter(op)

    def only(self, atom: Atom) -> Op | None:
        """The producer of a value that is read once; `None` if it is read again."""
        if not isinstance(atom, Value) or self.readers[atom] != 1:
            return None
        return self.producers.get(atom)

    def _start_scatter(self, op: Op) -> None:
        """Replace zeros scattered into and then added by a scatter into the addend."""
        for addend, other in (op.operands, op.operands[::-1]):
            producer = self.only(addend)
            if producer is None or producer.kind != "scatter-add":
                continue
            if is_zeros(self.producers, producer.operands[0]):
                operands = (other, *producer.operands[1:])
                self.replaced[op] = replace(
                    producer, operands=operands, results=op.results
                )
                self.dropped.add(producer)
                return


def _can_write(product: Op, transpose: Op) -> bool:
    """Whether a product with its operands exchanged writes its own transpose."""
    if product.kind != "dot_general":
        return False
    order: Any = transpose.params["permutation"]
    num_batch = len(_dims(product)[1][0])
    swapped = (*range(num_batch), num_batch + 1, num_batch)
    return not num_batch or (_is_stack(product) and tuple(order) == swapped)


def _misplaced(op: Op, maker: Mapping[Value, Op]) -> list[int]:
    """Positions of operands in another order than a library reads, to be copied."""
    if op.kind == "conv_general_dilated":
        numbers: Any = op.params["dimension_numbers"]
        return [
            position
            for position, spec in enumerate((numbers.lhs_spec, numbers.rhs_spec))
            if not _is_image(op.operands[position].shape, spec, position == 1)
        ]
    if op.kind != "dot_general":
        return []
    return [
        position
        for position, operand in enumerate(op.operands[:2])
        if not _is_in_order(op, position)
        if not (isinstance(operand, Value) and reads_through(op, maker.get(operand)))
    ]


def _is_image(shape: tuple[int, ...], spec: Sequence[int], is_kernel: bool) -> bool:
    """Whether dims are in the order that convolutions read.

    That is batch, space, features; for a kernel space, input and output features.
    spec: the dims of batch and features, or of output and input features; then space.
    """
    first, second, *space = spec
    order = (*space, second, first) if is_kernel else (first, *space, second)
    places = [d for d in order if shape[d] > 1]
    return places == sorted(places)


def reads_through(product: Op, op: Op | None) -> bool:
    """Whether an op is a transpose whose operand a product can read instead."""
    if product.kind != "dot_general" or op is None or op.kind != "transpose":
        return False
    order: Any = op.params["permutation"]
    (moved,) = op.results
    return all(
        _is_in_order(product, position, tuple(order))
        for position, operand in enumerate(product.operands[:2])
        if operand is moved
    )


def _is_in_order(op: Op, position: int, order: tuple[int, ...] | None = None) -> bool:
    """Whether an operand of a product is in the order that libraries read.

    That is a batch of matrices. Left: batch, free, contracted dims; right: batch,
    contracted, free dims. order: positions of the dims in memory, from the outermost;
    `None` for row-major order.
    """
    contracted, batch = _dims(op)
    shape = op.operands[position].shape
    inner, outer = contracted[position], batch[position]
    free = [d for d in range(len(shape)) if d not in inner and d not in outer]
    if _is_stack(op):  # matrices are read by rows as well as by columns
        places = [d if order is None else order[d] for d in outer]
        return places == list(range(len(outer)))
    wanted = (*outer, *inner, *free) if position else (*outer, *free, *inner)
    places = [d if order is None else order[d] for d in wanted if shape[d] > 1]
    return places == sorted(places)


def _is_stack(op: Op) -> bool:
    """Whether both operands are batches of matrices, with batch dims first."""
    return all(
        list(outer) == list(range(len(outer)))
        and len(inner) == 1
        and len(operand.shape) == len(outer) + 2
        for operand, inner, outer in zip(op.operands[:2], *_dims(op), strict=True)
    )


def _dims(op: Op) -> tuple[Any, Any]:
    """Contracted dims and batch dims, each of both operands."""
    numbers: Any = op.params["dimension_numbers"]
    return numbers
