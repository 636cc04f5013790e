"""Factor rules of sorting and top-k.

If the sorted dim is split, an all-to-all splits another dim in its place, each device sorts
whole rows, and a second one restores the split. If the searched dim of top-k, exact or
approximate, is split, each device finds the k best of its part, and all find the k best
of these.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from meshwright.program.ir import Op, Value
from meshwright.program.ir.values import itemsize_bytes
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import RuleFactors, same_dims_rule
from meshwright.program.rules.registry import OpWork, Trait, log2_rounded_up, rule
from meshwright.program.rules.rule import FactorRule, OpCut

_OWN_KERNEL = (Trait.STANDALONE, Trait.EXPENSIVE)


def _sorting_work(op: Op) -> OpWork:
    """The work of a sort: one comparison per element in each of log2 n merges."""
    shape = op.operands[0].shape
    extent = shape[op.params["dimension"]]
    return OpWork(math.prod(shape) * log2_rounded_up(extent))


def _selection_work(op: Op) -> OpWork:
    """The work of top-k: for each element, a binary search among the k best so far."""
    num_best = log2_rounded_up(op.params["k"])
    return OpWork(math.prod(op.operands[0].shape) * num_best)


@rule("sort", traits=_OWN_KERNEL, work=_sorting_work)
def sort(op: Op) -> FactorRule:
    """The factor rule `a(bc),a(bc)->a(bc),a(bc)` of a sort of two arrays along dim 1.

    The sorted dim is split into parts of which another dim has as many (`_sort_turned`):
    b is the largest common divisor of the two extents, and c stays whole. An array without
    such a dim cannot be split along the sorted one.
    """
    shape, axis = op.operands[0].shape, op.params["dimension"]
    others = (n for d, n in enumerate(shape) if d != axis)
    shared = max((math.gcd(shape[axis], n) for n in others), default=1)
    if shared < 2:
        return _off_dim(op, axis)
    factors = RuleFactors()
    dims = factors.each(shape, (axis,))
    split = factors.one(shared)
    dims[axis] = split + factors.indivisible(shape[axis] // shared)
    return factors.rule(
        [tuple(dims)] * len(op.operands),
        [tuple(dims)] * len(op.results),
        special=frozenset(split),
        expand=partial(_sort_turned, axis, split[0]),
    )


def _sort_turned(
    axis: int,
    factor: int,
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """Sort whole rows, while another dim is split; without such a dim, sort all rows."""
    axes, shape = cut.axes[factor], operands[0].shape
    n = builder.mesh.size(axes)
    even = [d for d, size in enumerate(shape) if d != axis and not size % n]
    if not even:
        whole = [builder.all_gather(x, axis, axes) for x in operands]
        made = builder.apply(op, whole, [x.shape for x in whole])
        return tuple(builder.all_slice(x, axis, axes) for x in made)
    turned = [builder.all_to_all(x, axis, even[0], axes) for x in operands]
    made = builder.apply(op, turned, [x.shape for x in turned])
    return tuple(builder.all_to_all(x, even[0], axis, axes) for x in made)


@rule("top_k", traits=_OWN_KERNEL, work=_selection_work)
def top_k(op: Op) -> FactorRule:
    """The factor rule `ab->a-,a-` of top-k, which returns values and positions."""
    (operand,), k = op.operands, op.params["k"]
    axis: int = op.params["axis"] % len(operand.shape)
    if not 0 < k <= MOST_CANDIDATES:
        return _off_dim(op, axis)
    return _searched_rule(op, axis, _top_of_parts)


def _searched_rule(op: Op, axis: int, expand: Callable[..., Any]) -> FactorRule:
    """The factor rule `ab->a-,a-` of a search for the k best along dim b, by parts.

    A part of b has at least as many bytes as the k best of it and their positions, so that
    these are not more to move than the parts.
    """
    (operand,), k = op.operands, op.params["k"]
    sizes = [itemsize_bytes(value.dtype) for value in (operand, op.results[1])]
    least = math.ceil(k * sum(sizes) / sizes[0])
    factors = RuleFactors()
    dims = factors.each(operand.shape, (axis,))
    searched = factors.one(operand.shape[axis], least=least)
    kept = (*dims[:axis], (), *dims[axis + 1 :])
    return factors.rule(
        [(*dims[:axis], searched, *dims[axis + 1 :])],
        [kept, kept],
        special=frozenset(searched),
        done=frozenset(searched),
        expand=partial(expand, axis, searched[0]),
    )


MOST_CANDIDATES = 128
"""The largest k of a top-k over a split dim: positions are found by k x k comparisons."""


def _top_of_parts(
    axis: int,
    factor: int,
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """The k largest of all devices' k largest, and their positions in the whole dim.

    Candidates are in the order of their positions, so that of equal ones the first wins.
    """
    (x,), axes, k = operands, cut.axes[factor], op.params["k"]
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    values, places = builder.apply(op, (x,), [shape, shape])
    places = _in_whole_dim(builder, places, axes, x.shape[axis])
    candidates = builder.all_gather(values, axis, axes)
    places = builder.all_gather(places, axis, axes)
    best, chosen = builder.apply(op, (candidates,), [shape, shape])
    # places[chosen], as a sum of which all addends but one are zero
    every = (*shape[: axis + 1], candidates.shape[axis], *shape[axis + 1 :])
    rest = tuple(range(axis + 2, len(every)))
    chosen = builder.broadcast(chosen, every, (*range(axis + 1), *rest))
    places = builder.broadcast(places, every, (*range(axis), axis + 1, *rest))
    is_chosen = builder.compare(
        "eq", chosen, builder.iota(every, axis + 1, chosen.dtype)
    )
    zeros = builder.full(every, 0, places.dtype)
    return best, builder.reduce(builder.select(is_chosen, zeros, places), (axis + 1,))


def _in_whole_dim(
    builder: Builder, places: Value, axes: tuple[str, ...], size: int
) -> Value:
    """Positions in a part of `size` elements as positions in the whole dim."""
    start = builder.binary("mul", builder.axis_index(axes), size)
    start = builder.convert(start, places.dtype)
    return builder.binary("add", places, builder.broadcast(start, places.shape, ()))


@rule("approx_top_k", traits=_OWN_KERNEL)
def approx_top_k(op: Op) -> FactorRule:
    """The factor rule `ab->a-,a-` of approximate top-k, which keeps its recall.

    The searched dim may be negative. It stays whole if the results are not reduced to the
    best k, since their number then depends on the length of the dim.
    """
    rank = len(op.operands[0].shape)
    axis: int = op.params["reduction_dimension"] % rank
    if not op.params["aggregate_to_topk"]:
        return _off_dim(op, axis)
    return _searched_rule(op, axis, _approximate_top_of_parts)


def _approximate_top_of_parts(
    axis: int,
    factor: int,
    builder: Builder,
    op: Op,
    operands: tuple[Value, ...],
    cut: OpCut,
) -> tuple[Value, ...]:
    """The k best of what all devices find, each with the recall of the whole dim.

    The size of the whole dim sets the recall of a search of a part (Chern et al., TPU-KNN,
    NeurIPS 2022). Candidates are sorted with their positions, which finds the best exactly.
    """
    (x,), axes, k = operands, cut.axes[factor], op.params["k"]
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    size = op.params["reduction_input_size_override"]
    if size < 0:
        size = op.operands[0].shape[axis]
    whole = {**op.params, "reduction_input_size_override": size}
    values, places = builder.apply(op, (x,), [shape, shape], whole)
    places = _in_whole_dim(builder, places, axes, x.shape[axis])
    found = [builder.all_gather(v, axis, axes) for v in (values, places)]
    if not op.params["is_max_k"]:
        best = builder.sort_by_first(found[0], found[1], axis)
        return tuple(builder.slice(v, axis, 0, k) for v in best)
    # The last ones, backwards: NaN is the largest, and the first of equal ones wins.
    values, places = (_backwards(builder, v, axis) for v in found)
    best = builder.sort_by_first(values, places, axis)
    size = best[0].shape[axis]
    return tuple(
        _backwards(builder, builder.slice(v, axis, size - k, size), axis) for v in best
    )


def _backwards(builder: Builder, x: Value, axis: int) -> Value:
    """The elements along a dim in reverse order."""
    return builder.emit("rev", (x,), x.shape, x.dtype, dims=(axis,))


def _off_dim(op: Op, dim: int) -> FactorRule:
    """The factor rule in which all values have equal dims, and `dim` is not split."""
    return same_dims_rule(op, (dim % len(op.operands[0].shape),))
