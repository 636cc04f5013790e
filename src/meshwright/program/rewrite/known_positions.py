"""Positions in arrays that a program has as constants, and the windows that begin there."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from meshwright.program.ir import Atom, Literal, Op, Value


def positions_of(
    op: Op, known: Mapping[Value, Sequence[int]]
) -> Mapping[Value, Sequence[int]]:
    """The result of an op if it is a constant vector of positions."""
    if len(op.results) != 1 or not op.results[0].dtype.startswith(("int", "uint")):
        return {}
    (result,) = op.results
    parts = [_position(operand, known) for operand in op.operands]
    if None in parts or not parts or math.prod(result.shape) > _MOST_POSITIONS:
        return {}
    read = [n for part in parts if part is not None for n in part]
    if op.kind == "broadcast_in_dim" and len(read) == 1:
        return {result: read * math.prod(result.shape)}
    if op.kind in ("concatenate", "reshape", "squeeze", "convert_element_type"):
        return {result: read}
    return {}


_MOST_POSITIONS = 8


def positions_inside(
    op: Op, body: int, known: Mapping[Value, Sequence[int]]
) -> dict[Value, Sequence[int]]:
    """The constant positions that a loop, branch or remat hands to one of its bodies."""
    return {
        op.bodies[body].inputs[place]: found
        for wire in op.wires
        if wire.operand is not None and not wire.outputs and not wire.is_stacked
        for each, place in wire.inputs
        if each == body
        and (found := _position(op.operands[wire.operand], known)) is not None
    }


def _position(atom: Atom, known: Mapping[Value, Sequence[int]]) -> Sequence[int] | None:
    if isinstance(atom, Literal):
        value: Any = atom.value
        return (
            [int(value)] if isinstance(value, int) or hasattr(value, "item") else None
        )
    return known.get(atom)


def window_starts(
    operand: Value, part: Value, starts: Sequence[int | None]
) -> dict[int, int] | None:
    """The dims in which a window is smaller than an array, with its clamped starts."""
    found: dict[int, int] = {}
    for d, (n, m, start) in enumerate(
        zip(operand.shape, part.shape, starts, strict=True)
    ):
        if n == m:
            continue
        if start is None or not m:
            return None
        found[d] = min(max(start, 0), n - m)
    return found


def scalars(
    atoms: Sequence[Atom], known: Mapping[Value, Sequence[int]]
) -> list[int | None]:
    found = [_position(atom, known) for atom in atoms]
    return [None if each is None else each[0] for each in found]


def indexed_starts(
    op: Op, known: Mapping[Value, Sequence[int]], names: tuple[str, ...]
) -> list[int | None] | None:
    """Start of each dim of the one window of a gather or scatter; `None` if unknown.

    names: the fields of its dimension numbers for window dims, dims without window, and
        indexed dims.
    """
    operand, indices = op.operands[:2]
    numbers: Any = op.params["dimension_numbers"]
    window, dropped, indexed = (tuple(getattr(numbers, name)) for name in names)
    every = tuple(range(len(operand.shape)))
    found = _position(indices, known)
    if found is None or dropped or window != every or numbers.operand_batching_dims:
        return None
    if not len(found) == len(indexed) == math.prod(indices.shape):
        return None
    starts: list[int | None] = [0] * len(every)
    for dim, start in zip(indexed, found, strict=True):
        starts[dim] = start
    return starts


def is_inside(operand: Value, part: Value, starts: Sequence[int | None]) -> bool:
    """Whether a window of a part's shape that begins there lies in the operand."""
    return all(
        start is not None and 0 <= start <= n - m
        for n, m, start in zip(operand.shape, part.shape, starts, strict=True)
    )
