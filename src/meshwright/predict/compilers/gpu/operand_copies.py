"""Kernels that transpose what one matrix product writes before another one reads it.

A product of XLA's GPU compiler reads each operand as a batch of matrices, so that in memory
its batch dims, its summed dims and its other dims must each be next to one another. The
projections of attention write [batch, position, head, element], of which the products of
heads need batch and head together, and the projection behind them writes as it multiplies.
A kernel in between copies the value to the needed order. An elementwise kernel writes and
reads any order by itself, and cuDNN's attention reads what the projections write. Like the
copies of `stack_copies.py`, these take time, but no memory of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from meshwright.predict.compilers.gpu.stack_copies import copy_of
from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.program.ir import Atom, Op, Program, Value

_PRODUCT = "dot_general"
_KEEPS_ORDER = frozenset({"convert_element_type", "copy_p", "optimization_barrier"})
"""Kinds of ops whose result has the order of dims of its operand."""


def with_operand_copies(
    fusions: Sequence[Fusion], program: Program
) -> tuple[Fusion, ...]:
    """The fusions with those that copy what products write in another order."""
    makers = {result: op for op in program.ops for result in op.results}
    products = {
        value
        for fusion in fusions
        if fusion.kind is FusionKind.PRODUCT and fusion.root.kind == _PRODUCT
        for value in fusion.writes
    }
    copied: set[tuple[Value, tuple[int, ...]]] = set()
    order: list[Fusion] = []
    for fusion in fusions:
        if fusion.bodies:
            pairs = zip(fusion.bodies, fusion.root.bodies, strict=True)
            bodies = tuple(with_operand_copies(*pair) for pair in pairs)
            fusion = replace(fusion, bodies=bodies)
        if fusion.kind is FusionKind.PRODUCT and fusion.root.kind == _PRODUCT:
            for key in _transposed(fusion.root, makers, products):
                if key not in copied:
                    copied.add(key)
                    order.append(copy_of(key[0]))
        order.append(fusion)
        order += [copy_of(v) for v in fusion.writes if _is_moved(fusion, v, makers)]
    return tuple(order)


def _transposed(
    op: Op, makers: Mapping[Value, Op], products: set[Value]
) -> Iterator[tuple[Value, tuple[int, ...]]]:
    """The results of products that a product needs in another order.

    Yields each with the dims of its batch, which stand for that order.
    """
    numbers: Any = op.params["dimension_numbers"]
    contracted, batch = numbers
    for position, operand in enumerate(op.operands[:2]):
        found = _stored(operand, makers, products)
        if found is None:
            continue
        value, dims = found
        groups = dict.fromkeys(batch[position], 0) | dict.fromkeys(
            contracted[position], 1
        )
        labels = {dims[d]: groups.get(d, 2) for d in range(len(dims))}
        if not _is_grouped([labels[d] for d in sorted(labels) if value.shape[d] > 1]):
            yield value, tuple(dims[d] for d in batch[position])


def _is_moved(fusion: Fusion, value: Value, makers: Mapping[Value, Op]) -> bool:
    """Whether a product fusion writes its product in an order that no product has."""
    op = fusion.root
    if fusion.kind is not FusionKind.PRODUCT or op.kind != _PRODUCT:
        return False
    found = _stored(value, makers, set(op.results))
    if found is None:
        return False
    numbers: Any = op.params["dimension_numbers"]
    (left_sum, _), (left_batch, _) = numbers
    first = len(left_batch)
    second = len(op.operands[0].shape) - len(left_sum)
    labels = [
        (d >= first) + (d >= second) for d in found[1] if op.results[0].shape[d] > 1
    ]
    return not _is_grouped(labels)


def _stored(
    operand: Atom, makers: Mapping[Value, Op], products: set[Value]
) -> tuple[Value, tuple[int, ...]] | None:
    """The stored result of a product that an operand is read from, with its dims.

    The dims are those of the result, by dim of the operand. `None` if the operand is
    something else.
    """
    dims = tuple(range(len(operand.shape)))
    while isinstance(operand, Value) and operand not in products:
        op = makers.get(operand)
        if op is None:
            return None
        if op.kind == "transpose":
            permutation: Any = op.params["permutation"]
            dims = tuple(permutation[d] for d in dims)
        elif op.kind not in _KEEPS_ORDER or len(op.operands) != 1:
            return None
        operand = op.operands[0]
    return (operand, dims) if isinstance(operand, Value) else None


def _is_grouped(labels: Sequence[int]) -> bool:
    """Whether equal labels are next to one another, and the last is no batch dim."""
    changes = sum(a != b for a, b in pairwise(labels))
    return changes == len(set(labels)) - 1 and (not labels or labels[-1] != 0)
