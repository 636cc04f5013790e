"""Factor rules of ops that change shapes or order.

In a rule such as `ab->a-`, letters (factors) are dims that can be sharded, and `-` is a
dim that cannot. A dim that the result has whole is a factor. Slices are in `slices.py`,
ops that join arrays in `joins.py`, slices at run-time positions in `dynamic.py`.
"""

from collections.abc import Mapping, Sequence

from meshwright.program.ir import Literal, Op, Value
from meshwright.program.rules.builder import Builder
from meshwright.program.rules.factors import (
    Factor,
    RuleFactors,
    all_operands,
    is_key,
    local_shape,
    same_dims_rule,
    with_result_shape,
)
from meshwright.program.rules.registry import Trait, rule
from meshwright.program.rules.rule import FactorRule, OpCut, Shape

_FIRST = (frozenset({0}),)


@rule("broadcast_in_dim", traits=(Trait.MOVES, Trait.REPEATS))
def broadcast_in_dim(op: Op) -> FactorRule:
    """The factor rule `a->ba`: letters are dims that can be sharded.

    A dim that is new or that repeats the operand is a factor of the result only.
    """
    factors = RuleFactors()
    (operand,), (result,) = op.operands, op.results
    dims = factors.each(result.shape)
    places = [int(d) for d in op.params["broadcast_dimensions"]]
    operand_dims = tuple(
        dims[d] if n == result.shape[d] else ()
        for n, d in zip(operand.shape, places, strict=True)
    )
    return factors.rule(
        [operand_dims],
        [tuple(dims)],
        linear=_FIRST,
        local_params=with_result_shape("shape"),
        is_zero=isinstance(operand, Literal) and bool(operand.value == 0),
    )


@rule("transpose", traits=(Trait.MOVES,))
def transpose(op: Op) -> FactorRule:
    """The factor rule `ab->ba`: letters are dims that can be sharded."""
    factors = RuleFactors()
    dims = factors.each(op.operands[0].shape)
    permuted = tuple(dims[int(d)] for d in op.params["permutation"])
    return factors.rule([tuple(dims)], [permuted], linear=_FIRST)


@rule("squeeze", traits=(Trait.ALIASES_OPERAND,))
def squeeze(op: Op) -> FactorRule:
    """The factor rule `a-->a`: letters are dims that can be sharded, `-` has size 1."""
    factors = RuleFactors()
    dropped = {int(d) for d in op.params["dimensions"]}
    dims = factors.each(op.operands[0].shape, dropped)
    kept = tuple(f for d, f in enumerate(dims) if d not in dropped)
    return factors.rule([tuple(dims)], [kept], linear=_FIRST)


@rule("tile", traits=(Trait.MOVES,))
def tile(op: Op) -> FactorRule:
    """The factor rule `a->(ra)`: a dim of size a is repeated r times.

    Both letters can be sharded; r is a factor of the result only.
    """
    factors = RuleFactors()
    operand_dims, made = [], []
    for n, times in zip(op.operands[0].shape, op.params["reps"], strict=True):
        dim = factors.one(n)
        operand_dims.append(dim)
        made.append(dim if times == 1 else factors.one(int(times)) + dim)
    return factors.rule(
        [tuple(operand_dims)], [tuple(made)], linear=_FIRST, local_params=_local_repeats
    )


def _local_repeats(
    op: Op, operands: tuple[Shape, ...], results: tuple[Shape, ...]
) -> Mapping[str, object]:
    pairs = zip(op.params["reps"], operands[0], results[0], strict=True)
    return {**op.params, "reps": tuple(r // n if n else t for t, n, r in pairs)}


@rule("rev", traits=(Trait.MOVES,))
def rev(op: Op) -> FactorRule:
    """The factor rule `ab->ab`: letters are dims that can be sharded.

    If a reversed dim is split, the devices also exchange their parts.
    """
    reversed_dims = frozenset(int(d) for d in op.params["dimensions"])
    if is_key(op.operands[0].dtype):
        return same_dims_rule(op, reversed_dims, linear=_FIRST)
    return same_dims_rule(op, linear=_FIRST, special=reversed_dims, expand=_swap_parts)


def _swap_parts(
    builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
) -> tuple[Value, ...]:
    """Reverse each device's part, then send part i of n to the device at n - 1 - i."""
    (found,) = builder.apply(op, operands, (operands[0].shape,))
    for d in op.params["dimensions"]:
        # Factor i is dim i, since every dim but those of keys has a factor.
        axes, n = cut.axes[int(d)], cut.parts[int(d)]
        if axes:
            found = builder.permute(
                found, axes, tuple((i, n - 1 - i) for i in range(n))
            )
    return (found,)


@rule("iota", traits=(Trait.REPEATS,))
def iota(op: Op) -> FactorRule:
    """The factor rule `->ab` of an op without operands; both dims can be sharded.

    Along a split dim, each device counts from the start of its own chunk.
    """
    return same_dims_rule(
        op,
        special=frozenset({op.params["dimension"]}),
        local_params=with_result_shape("shape"),
        expand=_count_on,
    )


def _count_on(
    builder: Builder, op: Op, operands: tuple[Value, ...], cut: OpCut
) -> tuple[Value, ...]:
    """This device's part of an iota, counted from its first global position.

    It counts in int32 and then converts, so that low-precision floats are rounded as on
    one device.
    """
    del operands
    dim, (result,) = op.params["dimension"], op.results
    dims = tuple((d,) for d in range(len(result.shape)))
    shape = local_shape(result.shape, dims, cut)
    here = builder.axis_index(cut.axes[dim])
    offset = builder.binary("mul", here, shape[dim])
    counted = builder.binary("add", builder.iota(shape, dim), offset)
    return (builder.convert(counted, result.dtype),)


@rule("empty")
def empty(op: Op) -> FactorRule:
    """The factor rule `->ab` of uninitialized memory; both dims can be sharded."""
    return same_dims_rule(op, local_params=with_result_shape("shape"))


@rule("platform_index")
def platform_index(op: Op) -> FactorRule:
    """The factor rule `->`: the result is a scalar, so that there is nothing to shard.

    The op gives the index of the branch that `lax.platform_dependent` takes.
    """
    return same_dims_rule(op)


@rule("stack", traits=(Trait.MOVES, Trait.JOINS))
def stack(op: Op) -> FactorRule:
    """The factor rule `a,a->-a`: letters can be sharded, the new dim `-` cannot."""
    factors = RuleFactors()
    dims = factors.each(op.operands[0].shape)
    return factors.rule(
        [tuple(dims)] * len(op.operands),
        [_with_hole(op, dims)],
        linear=all_operands(op),
    )


@rule("unstack", traits=(Trait.MOVES,))
def unstack(op: Op) -> FactorRule:
    """The factor rule `-a->a,a`: dim a can be sharded, the dim `-` cannot.

    Dim `-` is the one that is taken apart.
    """
    factors = RuleFactors()
    shape = list(op.operands[0].shape)
    del shape[op.params["axis"]]
    dims = factors.each(tuple(shape))
    results = [tuple(dims)] * len(op.results)
    return factors.rule([_with_hole(op, dims)], results, linear=_FIRST)


def _with_hole(op: Op, dims: Sequence[Factor]) -> tuple[Factor, ...]:
    axis = int(op.params["axis"]) % (len(dims) + 1)
    return (*dims[:axis], (), *dims[axis:])
