"""Factor rules of `dynamic_slice` and `dynamic_update_slice`.

Start positions are known only at run time. They are first clamped to the whole array,
as JAX does. Each device then subtracts the start of its chunk, and reads or writes only
the elements that are in its chunk. In rules such as `ab->a-`, letters are dims that can
be sharded and `-` is a dim that cannot.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from meshwright.program.ir import Atom, Literal, Op, Value
from meshwright.program.ops.movement.gather import IndexedDim, chunk_start
from meshwright.program.ops.movement.slices import sliced_rule
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import (
    RuleFactors,
    can_sum,
    is_key,
    no_dims,
    with_result_shape,
)
from meshwright.program.rules.registry import Trait, rule
from meshwright.program.rules.rule import Dims, FactorRule, OpCut, Shape

_INT_BITS = {"int8": 7, "uint8": 8, "int16": 15, "uint16": 16}


@rule("dynamic_slice", traits=(Trait.MOVES, Trait.READS_AT_INDEX))
def dynamic_slice(op: Op) -> FactorRule:
    """The factor rule `ab->a-`, for a slice that takes dim a whole and dim b in part.

    Letters are dims that can be sharded. Dim b is a reduction: each device contributes
    the elements that its chunk has, and zeros for the others, and the sum is the slice.
    """
    factors = RuleFactors()
    operand, *starts = op.operands
    part = op.results[0].shape
    if all(isinstance(start, Literal) for start in starts):
        return sliced_rule(op, _known(op), with_result_shape("slice_sizes"))
    can_split = [
        can_sum(operand.dtype) and 2 * m <= n
        for n, m in zip(operand.shape, part, strict=True)
    ]
    dims, kept, windows = _letters(factors, operand.shape, part, can_split)
    return factors.rule(
        [dims, *map(no_dims, starts)],
        [kept],
        linear=(frozenset({0}),),
        special=frozenset(f for dim in windows for f in dims[dim]),
        local_params=with_result_shape("slice_sizes"),
        expand=partial(_read_local_part, windows),
    )


def _known(op: Op) -> list[tuple[int, int, int]]:
    """Start, limit and stride of each dim of a slice at known positions, as clamped."""
    taken: list[tuple[int, int, int]] = []
    operand, *starts = op.operands
    for n, m, start in zip(operand.shape, op.results[0].shape, starts, strict=True):
        assert isinstance(start, Literal)
        value: Any = start.value
        first = min(max(int(value), 0), n - m)
        taken.append((first, first + m, 1))
    return taken


def _letters(
    factors: RuleFactors, whole: Shape, part: Shape, can_split: Sequence[bool]
) -> tuple[Dims, Dims, dict[int, IndexedDim]]:
    """Factors of an array's dims and of a slice's dims, and the dims taken in part.

    Only dims that can be split are listed, by their number.

    can_split: for each dim, whether it gets a factor if it is taken in part, in the
        array alone.
    """
    pairs = list(zip(whole, part, strict=True))
    dims = tuple(
        factors.one(n) if n == m or (can and m) else ()
        for (n, m), can in zip(pairs, can_split, strict=True)
    )
    kept = tuple(f if n == m else () for f, (n, m) in zip(dims, pairs, strict=True))
    windows = {
        d: IndexedDim(n, m, f)
        for d, (n, m) in enumerate(pairs)
        for f in dims[d]
        if n != m
    }
    return dims, kept, windows


def _read_local_part(
    windows: Mapping[int, IndexedDim],
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """Slice this device's chunk, which is first padded with zeros on both sides.

    Elements of the slice that lie in other devices' chunks become zeros.
    """
    operand, *raw_starts = operands
    whole, part = op.operands[0].shape, op.results[0].shape
    sizes = tuple(
        here if n == m else m
        for n, m, here in zip(whole, part, operand.shape, strict=True)
    )
    starts = _clamped(builder, whole, part, raw_starts)
    for dim, indexed in windows.items():
        chunk, size = indexed.chunk(cut), indexed.window
        if chunk is not None:
            here = chunk_start(builder, indexed, cut)
            start = builder.binary("sub", starts[dim], here)
            start = builder.clamp(start, -size, chunk)
            starts[dim] = builder.binary("add", start, size)
            operand = builder.pad_with_zeros(operand, dim, size)
    params = {**op.params, "slice_sizes": sizes}
    return builder.apply(op, (operand, *starts), (sizes,), params)


@rule("dynamic_update_slice", traits=(Trait.STANDALONE,))
def dynamic_update_slice(op: Op) -> FactorRule:
    """The factor rule `ab,a-->ab`, for an update that covers dim a whole and b in part.

    Letters are dims that can be sharded, `-` is a dim that cannot. Along b, each device
    writes the part of the update that falls into its chunk.
    """
    factors = RuleFactors()
    operand, update, *starts = op.operands
    can_split = [not is_key(operand.dtype)] * len(operand.shape)
    dims, kept, windows = _letters(factors, operand.shape, update.shape, can_split)
    return factors.rule(
        [dims, kept, *map(no_dims, starts)],
        [dims],
        linear=(frozenset({0, 1}),),
        special=frozenset(f for dim in windows for f in dims[dim]),
        expand=partial(_write_local_part, windows),
    )


def _write_local_part(
    windows: Mapping[int, IndexedDim],
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """Write the elements of the update that fall into this device's chunk.

    The range of the chunk that may change is read, merged with the update and written
    back.
    """
    operand, update, *raw_starts = operands
    starts = _clamped(builder, op.operands[0].shape, op.operands[1].shape, raw_starts)
    inside: list[tuple[int, Value]] = []
    for dim, indexed in windows.items():
        chunk, size = indexed.chunk(cut), indexed.window
        if chunk is None:
            continue
        length = min(size, chunk)
        here = chunk_start(builder, indexed, cut)
        start = builder.binary("sub", starts[dim], here)
        first = builder.clamp(start, 0, chunk - length)
        skipped = builder.binary("sub", first, start)
        update = _shifted(builder, update, dim, skipped, length)
        inside.append((dim, _is_inside(builder, skipped, length, size)))
        starts[dim] = first
    current = _read(builder, operand, starts, update.shape)
    for dim, mask in inside:
        which = builder.broadcast(mask, update.shape, (dim,))
        update = builder.select(which, current, update)
    return builder.apply(op, (operand, update, *starts), (operand.shape,))


def _clamped(
    builder: Builder, whole: Shape, part: Shape, starts: Sequence[Atom]
) -> list[Atom]:
    """Start positions as int32, clamped so that the slice stays inside of the array."""
    found: list[Atom] = []
    for n, m, start in zip(whole, part, starts, strict=True):
        if n == m:
            found.append(Literal(0, "int32"))
            continue
        if start.dtype.startswith("int"):
            start = builder.binary("max", start, 0)
        if n - m < 2 ** _INT_BITS.get(start.dtype, 31):
            start = builder.binary("min", start, n - m)
        is_int32 = start.dtype == "int32"
        found.append(start if is_int32 else builder.convert(start, "int32"))
    return found


def _shifted(
    builder: Builder, x: Value, dim: int, skipped: Value, length: int
) -> Value:
    """`length` elements of `x` along `dim` from position `skipped` on.

    Positions outside of `x` give zeros.
    """
    size = x.shape[dim]
    if size == length == 1:
        return x
    at = builder.binary("add", builder.clamp(skipped, -length, size), length)
    starts: list[Atom] = [Literal(0, "int32")] * len(x.shape)
    starts[dim] = at
    shape = (*x.shape[:dim], length, *x.shape[dim + 1 :])
    return _read(builder, builder.pad_with_zeros(x, dim, length), starts, shape)


def _is_inside(builder: Builder, skipped: Value, length: int, size: int) -> Value:
    """Whether each of `length` positions from `skipped` on is in 0..size - 1.

    The result is an array of bools, [length].
    """
    offset = builder.broadcast(skipped, (length,), ())
    at = builder.binary("add", builder.iota((length,), 0), offset)
    return builder.binary(
        "and", builder.compare("ge", at, 0), builder.compare("lt", at, size)
    )


def _read(builder: Builder, x: Value, starts: Sequence[Atom], shape: Shape) -> Value:
    return builder.emit("dynamic_slice", (x, *starts), shape, x.dtype, sizes=shape)
