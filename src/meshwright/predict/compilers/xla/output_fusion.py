"""Output fusion: products that also compute the elementwise ops on their result."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from meshwright.predict.compilers.hlo.dataflow import stored_outputs
from meshwright.predict.compilers.hlo.fusion import Fusion, FusionKind, read_shares
from meshwright.program.ir import Program, Value, num_bytes


def fuse_outputs(fusions: Sequence[Fusion], program: Program) -> list[Fusion]:
    """The fusions, each product merged with the elementwise fusion that alone reads it.

    That fusion becomes the product's epilogue, and the product as such is not written.
    """
    kept = set(stored_outputs(program))
    readers: dict[Value, list[int]] = {}
    for index, fusion in enumerate(fusions):
        for value in fusion.reads:
            readers.setdefault(value, []).append(index)
    made_at = {
        value: index for index, fusion in enumerate(fusions) for value in fusion.writes
    }
    found: list[Fusion | None] = list(fusions)
    for index, product in enumerate(fusions):
        if product.kind is not FusionKind.PRODUCT or len(product.writes) != 1:
            continue
        (value,) = product.writes
        used_by = readers.get(value, [])
        if len(used_by) != 1 or value in kept:
            continue
        end = found[used_by[0]]
        if end is None or not _is_epilogue(end, value):
            continue
        others = [v for v in end.reads if v is not value]
        is_early = all(made_at.get(v, -1) < index for v in others)
        held = sum(
            num_bytes(v)
            for v in product.reads
            if v in made_at and readers[v][-1] < used_by[0]
        )
        # A later epilogue would keep the operands alive, which may be more.
        if not is_early and held > num_bytes(value):
            continue
        found[index] = found[used_by[0]] = None
        found[index if is_early else used_by[0]] = _merged(product, end, others)
    return [fusion for fusion in found if fusion is not None]


def _merged(product: Fusion, end: Fusion, others: Sequence[Value]) -> Fusion:
    """The product with an epilogue that reads `others` besides its result."""
    added = [v for v in others if v not in product.reads]
    return Fusion(
        product.root,
        product.kind,
        tuple(dict.fromkeys((*product.reads, *others))),
        end.writes,
        product.work + end.work,
        _in_place(added, end.writes),
        overwrites=tuple(v for v in end.overwrites if v not in product.reads),
        shares=read_shares((product, end)),
        sides=product.sides,
    )


def _is_epilogue(fusion: Fusion, product: Value) -> bool:
    return fusion.kind is FusionKind.LOOP and all(
        math.prod(v.shape) == math.prod(product.shape) for v in fusion.writes
    )


def _in_place(operands: Iterable[Value], writes: Sequence[Value]) -> Value | None:
    """The first operand of an epilogue with the shape and dtype of what it writes.

    Operands of the product itself do not count: it needs many elements of them for one.
    """
    like = [(v.shape, v.dtype) for v in writes]
    return next((v for v in operands if [(v.shape, v.dtype)] == like), None)
