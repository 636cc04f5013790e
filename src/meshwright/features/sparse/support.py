"""Which ops can be written as linalg code, and which operands may stay sparse."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.errors import SparseError
from meshwright.features.sparse.mlir.emitter import Tensor, loop_order
from meshwright.features.sparse.mlir.formats import Format
from meshwright.features.sparse.mlir.scalars import (
    MLIR_DTYPES,
    SCALAR_KINDS,
    keeps_zeros,
)
from meshwright.program.ir import Op, Program, Value
from meshwright.program.rules.rule import Dims

REDUCTIONS = {"reduce_sum": "add", "reduce_max": "max", "reduce_min": "min"}
"""By kind, the op that combines two elements."""

SUMS = frozenset({"add", "add_any", "sub"})

RESHAPES = frozenset({"reshape", "squeeze", "expand_dims"})

_KNOWN = SCALAR_KINDS.union(
    REDUCTIONS, RESHAPES, ("dot_general", "broadcast_in_dim", "transpose")
)


def require_known(program: Program) -> None:
    """Raise `SparseError` for the first op or dtype that linalg code cannot express."""
    for op in program.ops:
        place = f"{op.kind} at {op.source or 'an unknown line'}"
        if op.kind not in _KNOWN:
            raise SparseError(
                f"{place} has no sparse form; wanted products, elementwise ops, "
                "reductions, broadcasts, reshapes and transpositions: "
                f"{', '.join(sorted(_KNOWN))}"
            )
        for value in (*op.operands, *op.results):
            if value.dtype not in MLIR_DTYPES:
                raise SparseError(
                    f"{place} has a value of {value.dtype}; wanted one of "
                    f"{', '.join(MLIR_DTYPES)}"
                )


def reads_sparse(op: Op, tensors: Sequence[Tensor]) -> list[bool]:
    """For each operand of an elementwise op, whether it may stay as it is stored."""
    sparse = next((t for t in tensors if t.format is not None), None)
    if sparse is None or sparse.format is None:
        return [True] * len(tensors)
    is_alike = [(t.format, t.order) == (sparse.format, sparse.order) for t in tensors]
    may_stay = [a or t.format is None for a, t in zip(is_alike, tensors, strict=True)]
    shape = sparse.value_shape
    if len(tensors) > 1 and shape != op.results[0].shape:  # it is broadcast
        return [t.format is None for t in tensors]
    if op.kind in SUMS and len(tensors) == 2:
        # MLIR has no union of blocks and elements, nor one with a dense tensor that is
        # read as such.
        return may_stay if all(is_alike) else [t.format is None for t in tensors]
    if op.kind == "mul":
        return may_stay
    return [len(tensors) == 1 and keeps_zeros(op)] * len(tensors)


def loops_clash(tensors: Sequence[Tensor], maps: Sequence[Dims]) -> bool:
    """Whether a product cannot read both operands sparse.

    The loops over a sparse matrix have the order in which its format stores dims, and
    two formats may need opposite orders. Blocks of BSR need loops of their own.
    """
    left, right = tensors
    if left.format is None or right.format is None:
        return False
    orders = [loop_order(t, dims) for t, dims in zip(tensors, maps, strict=True)]
    is_reversed = set(orders[0]) == set(orders[1]) and orders[0] != orders[1]
    return is_reversed or "bsr" in (left.format.name, right.format.name)


def takes_any_order(
    program: Program, value: Value, formats: Sequence[Format | None]
) -> bool:
    """Whether all readers of a product take it sparse, with columns in any order.

    These are other products, and the program's outputs in a sparse format.
    formats: of the program's outputs.
    """
    readers = [op for op in program.ops if value in op.operands]
    returned = [
        form is not None and form.held == Format("csr")
        for atom, form in zip(program.outputs, formats, strict=True)
        if atom == value
    ]
    return all(op.kind == "dot_general" for op in readers) and all(returned)
