"""Ops that take or write a window at a known position, as joins of slices.

Slices, paddings, concatenations and updates of a window are all of one form: along one dim,
intervals of the result are intervals of operands (`ops/movement/joined_slices.py`).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from meshwright.program.ir import Atom, Literal, Op, Value
from meshwright.program.ops.movement.joined_slices import ZERO
from meshwright.program.ops.movement.slices import LARGE
from meshwright.program.rewrite.known_positions import (
    indexed_starts,
    is_inside,
    scalars,
    window_starts,
)


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval of a value along one dim, and its place in a result.

    value: the value. start: position of its first element. at: position in the result.
    length: number of elements.
    """

    value: Value
    start: int
    at: int
    length: int

    def is_all(self, dim: int, size: int) -> bool:
        """Whether the result, of this size, is the value itself."""
        return self.start == self.at == 0 and (
            self.length == size == self.value.shape[dim]
        )


def nothing_of(value: Value) -> Interval:
    """No element of a value, for a result that holds only the fill value."""
    return Interval(value, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Move:
    """A result made of intervals of values along one dim; gaps hold a fill value.

    parts: at least one interval, without elements if all of the result is a gap.
    result: the value that is made; of several moves of one op, the last makes its result.
    fill: the value of gaps.
    """

    result: Value
    dim: int
    parts: tuple[Interval, ...]
    fill: Atom = ZERO


def moves_of(op: Op, known: Mapping[Value, Sequence[int]]) -> list[Move]:
    """The moves that make the results of an op, in order; empty for other ops.

    known: positions that are constants of the program.
    """
    read = _MOVES.get(op.kind)
    if read is None or not all(isinstance(a, Value) for a in op.operands[:1]):
        return []
    return list(read(op, known))


@dataclass(frozen=True, slots=True)
class MovedDim:
    """A dim of an operand of which an op moves a part.

    is_near: whether it is nearly all of the dim.
    is_small: whether the operand is a small part of what is joined.
    """

    value: Value
    dim: int
    is_near: bool
    is_small: bool


def moved_dims(op: Op, known: Mapping[Value, Sequence[int]]) -> Sequence[MovedDim]:
    """The dims of operands of which an op moves a part."""
    moves = [*moves_of(op, known), *added_window(op, known)]
    found: list[MovedDim] = []
    for move in moves:
        size = move.result.shape[move.dim]
        for part in move.parts:
            n = part.value.shape[move.dim]
            if part.length and n != size and part.value in op.operands:
                near, small = is_near(n, size), LARGE * n < size
                found.append(MovedDim(part.value, move.dim, near, small))
    operand = op.operands[0] if op.operands else None
    if isinstance(operand, Value):
        uneven = (*_uneven_strides(op), *_uneven_gaps(op))
        found += [MovedDim(operand, d, False, False) for d in uneven]
    return found


def even_strides(op: Op) -> tuple[Op, list[Move]] | None:
    """A slice such as `u[2::2]`, as `u[::2]` and a move; `None` for other ops.

    Devices have the elements of the former in their parts.
    """
    starts = _uneven_strides(op)
    if not starts:
        return None
    operand, (result,), strides = op.operands[0], op.results, op.params["strides"]
    shape, firsts, limits = (
        list(each)
        for each in (
            result.shape,
            op.params["start_indices"],
            op.params["limit_indices"],
        )
    )
    for d in starts:
        n = limits[d] = operand.shape[d]
        shape[d], firsts[d] = n // strides[d], firsts[d] % strides[d]
    made = Value(tuple(shape), result.dtype)
    params = {
        **op.params, "start_indices": tuple(firsts), "limit_indices": tuple(limits)
    }  # fmt: skip
    first = replace(op, results=(made,), params=params)
    return first, list(_window(made, result, starts))


def even_gaps(op: Op) -> tuple[list[Move], Op] | None:
    """A padding between elements, as a move and a padding that is even; `None` otherwise.

    It is the transpose of `u[2::2]`.
    """
    starts = _uneven_gaps(op)
    if not starts:
        return None
    now, fill = op.operands
    assert isinstance(now, Value)
    config, moves = list(op.params["padding_config"]), list[Move]()
    for d, start in starts.items():
        low, _, gap = config[d]
        shape, n = list(now.shape), op.results[0].shape[d] // (gap + 1)
        part, shape[d] = Interval(now, 0, start, now.shape[d]), n
        now = Value(tuple(shape), now.dtype)
        moves.append(Move(now, d, (part,), fill))
        config[d] = (low % (gap + 1), gap - low % (gap + 1), gap)
    params = {**op.params, "padding_config": tuple(config)}
    return moves, replace(op, operands=(now, fill), params=params)


def _uneven_gaps(op: Op) -> dict[int, int]:
    """The dims that a padding makes nearly k times as large, and where elements start."""
    if op.kind != "pad":
        return {}
    sizes = zip(op.operands[0].shape, op.results[0].shape, strict=True)
    made = zip(sizes, op.params["padding_config"], strict=True)
    return {
        d: int(low) // (gap + 1)
        for d, ((m, n), (low, high, gap)) in enumerate(made)
        if gap and min(low, high) >= 0
        if n % (gap + 1) == 0 and is_near(m, n // (gap + 1))
    }


def _uneven_strides(op: Op) -> dict[int, int]:
    """The dims of which a slice takes nearly every k-th element, and where it starts."""
    if op.kind != "slice" or not op.params["strides"]:
        return {}
    taken = zip(
        op.operands[0].shape,
        op.results[0].shape,
        op.params["start_indices"],
        op.params["strides"],
        strict=True,
    )
    return {
        d: int(start) // stride
        for d, (n, m, start, stride) in enumerate(taken)
        if stride > 1 and n % stride == 0 and is_near(n // stride, m)
    }


def is_near(n: int, m: int) -> bool:
    """Whether two extents differ, but by at most an eighth: n and n - 2.

    Parts of such dims do not correspond.
    """
    return n != m and 8 * abs(n - m) <= max(n, m)


# -- one kind of op each ----------------------------------------------------------------


def _window(operand: Value, result: Value, starts: Mapping[int, int]) -> Iterator[Move]:
    """Slices of a value, dim by dim; `starts` has the dims that are sliced."""
    now = operand
    for dim, start in starts.items():
        size = result.shape[dim]
        shape = (*now.shape[:dim], size, *now.shape[dim + 1 :])
        made = result if dim == list(starts)[-1] else Value(shape, result.dtype)
        yield Move(made, dim, (Interval(now, start, 0, size),))
        now = made


def _slice(op: Op, known: object) -> Iterator[Move]:
    del known
    (operand,), (result,) = op.operands, op.results
    assert isinstance(operand, Value)
    starts = op.params["start_indices"]
    strides = op.params["strides"] or (1,) * len(starts)
    if any(stride != 1 for stride in strides) or 0 in result.shape:
        return
    pairs = enumerate(zip(operand.shape, result.shape, strict=True))
    taken = {d: int(starts[d]) for d, (n, m) in pairs if n != m}
    yield from _window(operand, result, taken)


def _pad(op: Op, known: object) -> Iterator[Move]:
    del known
    (operand, fill), (result,) = op.operands, op.results
    assert isinstance(operand, Value)
    config = [tuple(map(int, each)) for each in op.params["padding_config"]]
    if any(gap for _, _, gap in config) or 0 in (*operand.shape, *result.shape):
        return
    padded = [d for d, (low, high, _) in enumerate(config) if low or high]
    now = operand
    for dim in padded:
        low, n, size = config[dim][0], now.shape[dim], result.shape[dim]
        shape = (*now.shape[:dim], size, *now.shape[dim + 1 :])
        made = result if dim == padded[-1] else Value(shape, result.dtype)
        start, at = max(0, -low), max(0, low)
        length = min(n - start, size - at)
        part = Interval(now, start, at, length) if length > 0 else nothing_of(now)
        yield Move(made, dim, (part,), fill)
        now = made


def _concatenate(op: Op, known: object) -> Iterator[Move]:
    del known
    dim, at = int(op.params["dimension"]), 0
    parts: list[Interval] = []
    for operand in op.operands:
        assert isinstance(operand, Value)
        if operand.shape[dim]:
            parts.append(Interval(operand, 0, at, operand.shape[dim]))
        at += operand.shape[dim]
    if at:
        yield Move(op.results[0], dim, tuple(parts))


def _split(op: Op, known: object) -> Iterator[Move]:
    del known
    dim, start = int(op.params["axis"]), 0
    (operand,) = op.operands
    assert isinstance(operand, Value)
    if not all(result.shape[dim] for result in op.results):
        return
    for result in op.results:
        size = result.shape[dim]
        yield Move(result, dim, (Interval(operand, start, 0, size),))
        start += size


def _dynamic_slice(op: Op, known: Mapping[Value, Sequence[int]]) -> Iterator[Move]:
    operand, *indices = op.operands
    assert isinstance(operand, Value)
    starts = window_starts(operand, op.results[0], scalars(indices, known))
    if starts is not None:
        yield from _window(operand, op.results[0], starts)


def _dynamic_update(op: Op, known: Mapping[Value, Sequence[int]]) -> Iterator[Move]:
    operand, update, *indices = op.operands
    if isinstance(operand, Value) and isinstance(update, Value):
        starts = window_starts(operand, update, scalars(indices, known))
        if starts is not None:
            yield from _written(operand, update, op.results[0], starts)


def _written(
    operand: Value, update: Value, result: Value, starts: Mapping[int, int]
) -> Iterator[Move]:
    """An array with a window overwritten: along each dim, what is around the window."""
    around = [operand]
    for dim, start in list(starts.items())[:-1]:
        size = update.shape[dim]
        shape = (*around[-1].shape[:dim], size, *around[-1].shape[dim + 1 :])
        made = Value(shape, operand.dtype)
        yield Move(made, dim, (Interval(around[-1], start, 0, size),))
        around.append(made)
    now = update
    for dim, start in reversed(list(starts.items())):
        outer, n, size = around.pop(), operand.shape[dim], update.shape[dim]
        stop = start + size
        parts = (Interval(outer, 0, 0, start), Interval(now, 0, start, size))
        parts = (*parts, Interval(outer, stop, stop, n - stop))
        made = Value(outer.shape, result.dtype) if around else result
        yield Move(made, dim, tuple(part for part in parts if part.length))
        now = made


def _gather(op: Op, known: Mapping[Value, Sequence[int]]) -> Iterator[Move]:
    operand, (result,) = op.operands[0], op.results
    assert isinstance(operand, Value)
    names = ("offset_dims", "collapsed_slice_dims", "start_index_map")
    starts = indexed_starts(op, known, names)
    if starts is not None and is_inside(operand, result, starts):
        found = window_starts(operand, result, starts)
        yield from _window(operand, result, found or {})


def _scatter(op: Op, known: Mapping[Value, Sequence[int]]) -> Iterator[Move]:
    operand, _, update = op.operands
    names = (
        "update_window_dims",
        "inserted_window_dims",
        "scatter_dims_to_operand_dims",
    )
    starts = indexed_starts(op, known, names)
    if (
        starts is None
        or not isinstance(operand, Value)
        or not isinstance(update, Value)
    ):
        return
    if op.params["update_jaxpr"] is None and is_inside(operand, update, starts):
        found = window_starts(operand, update, starts)
        yield from _written(operand, update, op.results[0], found or {})


def added_window(op: Op, known: Mapping[Value, Sequence[int]]) -> list[Move]:
    """The moves that pad the updates of a scatter that adds one window, if it does."""
    if op.kind not in ("scatter-add", "scatter_add"):
        return []
    operand, _, update = op.operands
    names = (
        "update_window_dims",
        "inserted_window_dims",
        "scatter_dims_to_operand_dims",
    )
    starts = indexed_starts(op, known, names)
    if (
        starts is None
        or not isinstance(operand, Value)
        or not isinstance(update, Value)
    ):
        return []
    found = window_starts(operand, update, starts)
    if not found or not is_inside(operand, update, starts):
        return []
    moves: list[Move] = []
    now = update
    for dim, start in found.items():
        made = Value(
            (*now.shape[:dim], operand.shape[dim], *now.shape[dim + 1 :]), operand.dtype
        )
        part = Interval(now, 0, start, now.shape[dim])
        moves.append(Move(made, dim, (part,), Literal(0, operand.dtype)))
        now = made
    return moves


_MOVES = {
    "slice": _slice,
    "pad": _pad,
    "concatenate": _concatenate,
    "split": _split,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update,
    "gather": _gather,
    "scatter": _scatter,
}
