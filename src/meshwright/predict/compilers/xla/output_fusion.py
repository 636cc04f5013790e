"""Products that finish what is made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from meshwright.predict.compilers.xla.dataflow import stored_outputs
from meshwright.predict.compilers.xla.fusion import Fusion, FusionKind, shares_of
from meshwright.program.ir import Program, Value, num_bytes


def with_epilogues(units: tuple[Fusion, ...], program: Program) -> tuple[Fusion, ...]:
    """Products that finish, element by element, what one other unit makes of them.

    Such a unit is the product's own end, and the product as such is never written.
    """
    kept = set(stored_outputs(program))
    readers: dict[Value, list[int]] = {}
    for index, unit in enumerate(units):
        for value in unit.reads:
            readers.setdefault(value, []).append(index)
    made_at = {
        value: index for index, unit in enumerate(units) for value in unit.writes
    }
    found: list[Fusion | None] = list(units)
    for index, unit in enumerate(units):
        if unit.kind is not FusionKind.PRODUCT or len(unit.writes) != 1:
            continue
        (value,) = unit.writes
        used_by = readers.get(value, [])
        if len(used_by) != 1 or value in kept:
            continue
        end = found[used_by[0]]
        if end is not None and _is_epilogue(end, value):
            others = [v for v in end.reads if v is not value]
            early = all(made_at.get(v, -1) < index for v in others)
            held = sum(
                num_bytes(v)
                for v in unit.reads
                if v in made_at and readers[v][-1] < used_by[0]
            )
            if not early and held > num_bytes(value):
                continue
            found[index] = found[used_by[0]] = None
            found[index if early else used_by[0]] = Fusion(
                unit.root,
                unit.kind,
                tuple(dict.fromkeys((*unit.reads, *others))),
                end.writes,
                unit.work + end.work,
                _in_place((v for v in others if v not in unit.reads), end.writes),
                overwrites=tuple(v for v in end.overwrites if v not in unit.reads),
                shares=shares_of((unit, end)),
                sides=unit.sides,
            )
    return tuple(unit for unit in found if unit is not None)


def _is_epilogue(unit: Fusion, product: Value) -> bool:
    return unit.kind is FusionKind.LOOP and all(
        math.prod(v.shape) == math.prod(product.shape) for v in unit.writes
    )


def _in_place(operands: Iterable[Value], writes: Sequence[Value]) -> Value | None:
    """The first operand of the element-by-element end that is as what it writes.

    None of those that the product reads: of them it needs more than one element each.
    """
    kind = [(v.shape, v.dtype) for v in writes]
    return next((v for v in operands if [(v.shape, v.dtype)] == kind), None)
