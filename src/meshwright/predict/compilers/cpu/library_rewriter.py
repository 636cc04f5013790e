"""Library rewriter: the operand layouts and fused results of CPU libraries.

XLA: `LibraryRewriter`, with the copies that `LayoutAssignment` adds. Products and
convolutions read operands in one order of dims, so operands in another order are copied
first. They write the result of a following transpose or conversion directly. A scatter
into zeros whose result is added to a value scatters into that value instead.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshwright.predict.compilers.model.compilation import Origins
from meshwright.predict.compilers.model.fusion import is_zeros
from meshwright.program.ir import Atom, Op, Program, Value


def rewrite_for_libraries(program: Program, origins: Origins) -> Program:
    """Copy operands into the order that libraries read; fuse results into products."""
    producers: dict[Atom, Op] = {r: op for op in program.ops for r in op.results}
    replaced, dropped = _fused_results(program, producers)
    ops: list[Op] = []
    for op in program.ops:
        if op in dropped:
            continue
        made = replaced.get(op, op)
        operands: list[Atom] = list(made.operands)
        for position in _misplaced(made, producers):
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


def _fused_results(
    program: Program, producers: Mapping[Atom, Op]
) -> tuple[dict[Op, Op], set[Op]]:
    """Ops that absorb the op that makes their operand, with their replacements.

    An op absorbs a producer only if nothing else reads the producer's result. Returns
    the replacement of each such op, and the set of absorbed producers. A transpose that
    the product before it can write becomes a reshape; the product stays.
    """
    reads: Counter[Atom] = Counter(program.outputs)
    reads.update(v for op in program.ops for v in op.operands)
    replaced: dict[Op, Op] = {}
    dropped: set[Op] = set()
    for op in program.ops:
        for operand, other in zip(op.operands, op.operands[::-1], strict=True):
            producer = producers.get(operand) if reads[operand] == 1 else None
            if producer is None or op in replaced:
                continue
            if op.kind == "transpose" and _can_write(producer, op):
                # The product exchanges its operands and writes the transpose.
                replaced[op] = replace(op, kind="reshape")
            elif op.kind == "convert_element_type" and producer.kind == "dot_general":
                replaced[op] = replace(producer, results=op.results)
                dropped.add(producer)
            elif op.kind in {"add", "add_any"} and _scatters(producer, producers):
                operands = (other, *producer.operands[1:])
                made = replace(producer, operands=operands, results=op.results)
                replaced[op] = made
                dropped.add(producer)
    return replaced, dropped


def _scatters(op: Op, producers: Mapping[Atom, Op]) -> bool:
    """Whether an op is a scatter-add into an array of zeros."""
    return op.kind == "scatter-add" and is_zeros(producers, op.operands[0])


def _can_write(product: Op, transpose: Op) -> bool:
    """Whether a product can write its own transpose by exchanging its two operands."""
    if product.kind != "dot_general":
        return False
    order: Any = transpose.params["permutation"]
    num_batch = len(_dims(product)[1][0])
    swapped = (*range(num_batch), num_batch + 1, num_batch)
    return not num_batch or (_is_stack(product) and tuple(order) == swapped)


def _misplaced(op: Op, producers: Mapping[Atom, Op]) -> list[int]:
    """Positions of an op's operands that must be copied into another order of dims.

    Libraries read the operands of products and convolutions in one order only.
    """
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
        and not reads_through(op, producers.get(operand))
    ]


def _is_image(shape: tuple[int, ...], spec: Sequence[int], is_kernel: bool) -> bool:
    """Whether the dims of a convolution's operand are in the order that libraries read.

    Images have the order batch, space, features. Kernels have the order space, input
    features, output features.
    spec: numbers of the dims, as in JAX's `ConvDimensionNumbers`: batch and features
        (for a kernel: output and input features), then space.
    """
    first, second, *space = spec
    order = (*space, second, first) if is_kernel else (first, *space, second)
    places = [d for d in order if shape[d] > 1]
    return places == sorted(places)


def reads_through(product: Op, op: Op | None) -> bool:
    """Whether an op is a transpose that is not computed before a product.

    The product reads the untransposed operand instead, in another order of dims.
    """
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
    """Whether the dims of a product's operand are in the order that libraries read.

    A left operand has batch, free, then contracted dims; a right operand has batch,
    contracted, then free dims. order: numbers of the operand's dims in memory, from the
    outermost; `None` for row-major order.
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
    """Whether both operands of a product are batches of matrices, batch dims first."""
    return all(
        list(outer) == list(range(len(outer)))
        and len(inner) == 1
        and len(operand.shape) == len(outer) + 2
        for operand, inner, outer in zip(op.operands[:2], *_dims(op), strict=True)
    )


def _dims(op: Op) -> tuple[Any, Any]:
    """The contracted dims of a product's two operands, then the batch dims of both."""
    numbers: Any = op.params["dimension_numbers"]
    return numbers
