"""The factor rule of gathers, by which a lookup in a split table moves no part of it.

Factors are letters of dims that can be sharded (`rules/rule.py`). Batch dims of
indices, dims that are taken whole and batching dims are parallel factors. A dim that is
indexed element by element, such as the vocabulary of an embedding table, is a
reduction: the device whose chunk has an index gathers the row, all others contribute
zeros, and the sum over devices is the row.

    table[V, E], ids[B, 1] -> rows[B, E]        letters: ve, b- -> be; v is special

The last dim of the indices is an index vector, each component of which addresses one
dim of the operand. If that dim is split, every device subtracts the start of its chunk
from the indices; positions outside of the chunk belong to other devices. Scatters treat
their indices in the same way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce

from meshwright.program.ir import Op, Value
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import (
    INT32_MAX,
    Factor,
    RuleFactors,
    can_sum,
    local_shape,
)
from meshwright.program.rules.registry import Trait, rule
from meshwright.program.rules.rule import Dims, FactorRule, OpCut, Shape

_WIDE = ("uint32", "int64", "uint64")


@dataclass(frozen=True, slots=True)
class IndexedDim:
    """A dim of an operand in which an index says where elements are read or written.

    extent: the dim's extent on all devices together.
    window: number of elements of that dim that one index takes.
    factor: number of the dim's factor if the dim can be split, else `None`.
    """

    extent: int
    window: int
    factor: int | None = None

    def chunk(self, cut: OpCut) -> int | None:
        """Elements of the dim on each device if the dim is split, else `None`."""
        if self.factor is None or not cut.is_cut(self.factor):
            return None
        return self.extent // cut.parts[self.factor]


def indexed_dims(
    factors: RuleFactors,
    dims: list[Factor],
    shape: Shape,
    windows: Sequence[int],
    addressed: Sequence[int],
    can_split: bool = True,
) -> tuple[IndexedDim, ...]:
    """The operand dims that the index vector addresses, one per component.

    A dim that is indexed element by element gets a factor, which is entered in `dims`.
    windows: for each operand dim, the number of elements that one index takes.
    addressed: the operand dim of each component.
    """
    can_split &= max(shape, default=0) <= INT32_MAX
    indexed: list[IndexedDim] = []
    for dim in addressed:
        factor = None
        if can_split and windows[dim] == 1 and shape[dim] > 1:
            dims[dim] = factors.one(shape[dim])
            (factor,) = dims[dim]
        indexed.append(IndexedDim(shape[dim], windows[dim], factor))
    return tuple(indexed)


def dims_without(rank: int, dropped: Sequence[int]) -> tuple[int, ...]:
    """The dims 0 to rank - 1, in order, except those in `dropped`."""
    return tuple(d for d in range(rank) if d not in dropped)


def is_wide(dtype: str) -> bool:
    """Whether the integer dtype has values that do not fit into int32."""
    return dtype in _WIDE


def split_components(builder: Builder, indices: Value) -> list[Value]:
    """The components of the index vector (last dim), each as an array [..., 1]."""
    last = len(indices.shape) - 1
    count = indices.shape[last]
    if count == 1:
        return [indices]
    return [builder.slice(indices, last, i, i + 1) for i in range(count)]


def join_components(builder: Builder, components: Sequence[Value]) -> Value:
    """The index vector made of these components; the inverse of `split_components`."""
    if len(components) == 1:
        return components[0]
    return builder.concatenate(components, len(components[0].shape) - 1)


def clamp_int32(builder: Builder, x: Value, low: int, high: int) -> Value:
    """`x` of any integer dtype clamped to [low, high], as int32."""
    if is_wide(x.dtype):
        return to_int32(builder, builder.clamp(x, low, high))
    return builder.clamp(to_int32(builder, x), low, high)


def to_int32(builder: Builder, x: Value) -> Value:
    """`x` as int32; indices beyond int32 wrap, as they do in `jax.lax.gather`."""
    return x if x.dtype == "int32" else builder.convert(x, "int32")


def chunk_start(builder: Builder, dim: IndexedDim, cut: OpCut) -> Value:
    """The global position of the start of this device's chunk of a split dim.

    The result is an int32 scalar.
    """
    assert dim.factor is not None, "only a cut dim has chunks"
    here = builder.axis_index(cut.axes[dim.factor])
    return builder.binary("mul", here, dim.extent // cut.parts[dim.factor])


@rule(
    "gather",
    traits=(Trait.MOVES, Trait.READS_AT_INDEX, Trait.STANDALONE, Trait.EXPENSIVE),
)
def gather(op: Op) -> FactorRule:
    """The factor rule of `lax.gather`, for any dimension numbers.

    The docstring of this file explains it with an example.
    """
    numbers, sizes = op.params["dimension_numbers"], op.params["slice_sizes"]
    operand, indices = (a.shape for a in op.operands)
    factors = RuleFactors()
    batch = factors.each(indices[:-1])
    table: list[Factor] = [()] * len(operand)
    for dim, where in zip(
        numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True
    ):
        table[dim] = batch[where] if sizes[dim] == 1 else ()
    result: list[Factor] = [()] * len(op.results[0].shape)
    for where, dim in zip(numbers.offset_dims, _windows(op), strict=True):
        if sizes[dim] == operand[dim]:
            table[dim] = result[where] = factors.one(operand[dim])
    places = dims_without(len(result), numbers.offset_dims)
    for where, factor in zip(places, batch, strict=True):
        result[where] = factor
    dtype = op.operands[0].dtype
    can_split = dtype == "bool" or can_sum(dtype)
    indexed = indexed_dims(
        factors, table, operand, sizes, numbers.start_index_map, can_split
    )
    special = frozenset(d.factor for d in indexed if d.factor is not None)
    return factors.rule(
        [tuple(table), (*batch, ())],
        [tuple(result)],
        monoid="or" if dtype == "bool" else "sum",
        linear=(frozenset({0}),) if _is_linear(op) else (),
        special=special,
        local_params=_local_params,
        expand=partial(_expand, indexed, tuple(result)) if special else None,
    )


def _is_filled(op: Op) -> bool:
    return op.params["mode"].name == "FILL_OR_DROP"


def _windows(op: Op) -> tuple[int, ...]:
    """Operand dims that also are dims of the result, in the order of `offset_dims`."""
    numbers = op.params["dimension_numbers"]
    dropped = (*numbers.collapsed_slice_dims, *numbers.operand_batching_dims)
    return dims_without(len(op.operands[0].shape), dropped)


def _is_linear(op: Op) -> bool:
    """Whether a gather of partial sums gives partial sums of the gather.

    Rows out of bounds are filled with a value; a sum of such values must be that value
    again, which is true for 0 and NaN.
    """
    if not can_sum(op.operands[0].dtype):
        return False
    fill: complex = op.params["fill_value"]
    return not _is_filled(op) or bool(fill == 0) or bool(fill != fill)


def _local_params(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    """A gather's parameters for one device: slice sizes with local extents.

    They change along dims of which the slice takes every element.
    """
    del results
    sizes = list(op.params["slice_sizes"])
    for dim in _windows(op):
        if sizes[dim] == op.operands[0].shape[dim]:
            sizes[dim] = operands[0][dim]
    return {**op.params, "slice_sizes": tuple(sizes)}


def _expand(
    indexed: tuple[IndexedDim, ...],
    result: Dims,
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """Gather the rows that are in this device's chunk of the table, zeros for others.

    An index out of bounds belongs to the nearest chunk, whose device clamps it or fills
    the row, as the gather's mode says. So exactly one device contributes each row.
    """
    table, indices = operands
    fills = _is_filled(op)
    moved: list[Value] = []
    owned: list[Value] = []
    parts = split_components(builder, indices)
    for part, dim in zip(parts, indexed, strict=True):
        if is_wide(part.dtype) and not fills:
            index = clamp_int32(builder, part, 0, dim.extent - dim.window)
        else:
            index = to_int32(builder, part)
        if dim.chunk(cut) is not None:
            owned.append(_owns(builder, index, dim, cut))
            index = builder.binary("sub", index, chunk_start(builder, dim, cut))
        moved.append(index)
    params = _local_params(op, (table.shape, indices.shape), ())
    shape = local_shape(op.results[0].shape, result, cut)
    starts = join_components(builder, moved)
    (rows,) = builder.apply(op, (table, starts), (shape,), params)
    owns_all = reduce(partial(builder.binary, "and"), owned)
    mask = builder.reshape(owns_all, indices.shape[:-1])
    places = dims_without(len(rows.shape), op.params["dimension_numbers"].offset_dims)
    mask = builder.broadcast(mask, rows.shape, places)
    zeros = builder.full(rows.shape, 0, rows.dtype)
    return (builder.select(mask, zeros, rows),)


def _owns(builder: Builder, index: Value, dim: IndexedDim, cut: OpCut) -> Value:
    """Whether the nearest index in bounds is in this device's chunk.

    The result is an array of bools, [..., 1], one per index.
    """
    nearest = builder.clamp(index, 0, dim.extent - 1)
    offset = builder.binary("sub", nearest, chunk_start(builder, dim, cut))
    above = builder.compare("ge", offset, 0)
    below = builder.compare("lt", offset, dim.chunk(cut) or 0)
    return builder.binary("and", above, below)
