"""Ops that say where things live: constraints, and the user's own `shard_map`.

A constraint is an identity. A `shard_map` over the mesh's own axes is opaque inside, but
its specs fix how operands and results are stored: each axis is a letter of the axis's
size, major in every dim that it cuts, so that cutting the letter is exactly the spec.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from meshwright.program.ir import Atom, Op
from meshwright.program.rules.registry import rule
from meshwright.program.rules.rule import Dims, FactorRule
from meshwright.program.rules.traits import Trait


@rule("sharding_constraint", "reshard", traits=(Trait.SHARDING_CONSTRAINT,))
def constraint(op: Op) -> FactorRule:
    """An identity; its own sharding is applied before any tactic."""
    dims: Dims = tuple((d,) for d in range(len(op.operands[0].shape)))
    linear = (frozenset({0}),)
    return FactorRule(op.operands[0].shape, (dims,), (dims,), linear=linear)


@rule("shard_map")
def manual(op: Op) -> FactorRule:
    """Letters for the axes of the op's own mesh, first in each dim that they cut.

    Axes in the order of `manual_axes(op)` are factors 0, 1, ...; what remains of a dim
    is a factor of its own. The body does its own reductions.
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

    operands = tuple(map(dims_of, op.operands, op.params["in_specs"]))  # pyright: ignore[reportArgumentType]
    results = tuple(map(dims_of, op.results, op.params["out_specs"]))  # pyright: ignore[reportArgumentType]
    done = frozenset(range(len(names)))
    return FactorRule(tuple(extents), operands, results, done=done)


def manual_axes(op: Op) -> Mapping[str, int]:
    """Axis sizes of the mesh that a `shard_map` names."""
    return dict(op.params["mesh"].shape)  # pyright: ignore[reportAttributeAccessIssue]


def spec_axes(spec: object, rank: int) -> tuple[tuple[str, ...], ...]:
    """A `PartitionSpec`, or a list like one, as axes per dim."""
    entries = list(spec) if isinstance(spec, Iterable) else []
    axes = [
        (e,) if isinstance(e, str) else tuple(e) if isinstance(e, tuple) else ()
        for e in entries
    ]
    return tuple(axes) + ((),) * (rank - len(axes))
