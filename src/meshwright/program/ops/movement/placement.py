"""Factor rules of ops by which users fix shardings: constraints and `shard_map`.

A constraint is an identity. The body of a `shard_map` is not analysed, but its specs
fix the shardings of operands and results. Each mesh axis becomes a factor (a letter of
the rule, which can be split) of the axis's size, as the major part of every dim that it
splits. To split that factor along the axis gives exactly the sharding that the spec
asks for.
"""

from collections.abc import Iterable, Mapping

from meshwright.program.ir import Atom, Op
from meshwright.program.rules.factors import all_operands, same_dims_rule
from meshwright.program.rules.registry import Trait, rule
from meshwright.program.rules.rule import Dims, FactorRule


@rule("sharding_constraint", "reshard", traits=(Trait.SHARDING_CONSTRAINT,))
def constraint(op: Op) -> FactorRule:
    """The factor rule of a sharding constraint, which is that of an identity.

    `partitioner.constraints` applies the sharding that it asks for before any tactic.
    """
    return same_dims_rule(op, linear=(frozenset({0}),))


@rule("shard_map")
def manual(op: Op) -> FactorRule:
    """The factor rule of a `shard_map`, with one factor per axis of its mesh.

    Factors 0, 1, ... are the axes in the order of `manual_axes(op)`; the rest of a dim
    is one more factor. The body itself reduces over axes, so that no result is partial.
    """
    sizes = manual_axes(op)
    names = list(sizes)
    extents = list(sizes.values())

    def dims_of(atom: Atom, spec: object) -> Dims:
        dims: list[tuple[int, ...]] = []
        for axes, extent in zip(
            spec_axes(spec, len(atom.shape)), atom.shape, strict=True
        ):
            rest = extent
            for axis in axes:
                rest //= sizes[axis]
            extents.append(rest)
            dims.append(
                (*(names.index(a) for a in axes), len(extents) - 1) if axes else ()
            )
        return tuple(dims)

    operands = tuple(map(dims_of, op.operands, op.params["in_specs"]))
    results = tuple(map(dims_of, op.results, op.params["out_specs"]))
    done = frozenset(range(len(names)))
    return FactorRule(tuple(extents), operands, results, done=done)


def manual_axes(op: Op) -> Mapping[str, int]:
    """The axis sizes of the mesh of a `shard_map`, by axis name."""
    return dict(op.params["mesh"].shape)


def spec_axes(spec: object, rank: int) -> tuple[tuple[str, ...], ...]:
    """The mesh axes of each dim in a `PartitionSpec` or a list of its entries."""
    entries = list(spec) if isinstance(spec, Iterable) else []
    axes = [
        (e,) if isinstance(e, str) else tuple(e) if isinstance(e, tuple) else ()
        for e in entries
    ]
    return tuple(axes) + ((),) * (rank - len(axes))


@rule("send", traits=(Trait.ALIASES_OPERAND,))
def send(op: Op) -> FactorRule:
    """The factor rule of `send`, an identity whose result lives on other devices.

    Its operand must not be partial: `send` moves complete values.
    """
    return same_dims_rule(op)


@rule("total", traits=(Trait.ALIASES_OPERAND,))
def total(op: Op) -> FactorRule:
    """The factor rule of `total`, an operand reduced over repeated runs of a program.

    Params: the `monoid` of the reduction, and the number of runs, `times`. A partial sum
    over devices may be added up over the runs before it is added up over devices.
    """
    is_sum = op.params["monoid"] == "sum"
    return same_dims_rule(op, linear=all_operands(op) if is_sum else ())
