"""Shardings in the user's own code: sharding constraints, and inner `shard_map`s.

They are applied before the first tactic, so that no tactic can override them.
"""

from collections.abc import Mapping
from typing import Any

from jax.sharding import PartitionSpec

from meshwright.errors import CaptureError
from meshwright.partitioner.propagate import Cause, Graph, Node
from meshwright.partitioner.structure.workspace import Refusal, Workspace
from meshwright.program.ir import Op
from meshwright.program.ops import Trait, has_trait
from meshwright.program.ops.movement.placement import manual_axes, spec_axes

CONSTRAINT = "with_sharding_constraint"
_SHARD_MAP = "shard_map in the code"
CODE = frozenset({CONSTRAINT, _SHARD_MAP})
"""Names that stand for shardings in the user's code in place of a tactic's name."""

type AxisSeeds = dict[str, list[tuple[str, Node, int]]]
"""Dims to shard along each axis: (source line, node, dim of the node's result)."""


def manual_names(graph: Graph) -> frozenset[str]:
    """The axes of the user's own `shard_map`s, which must not be split into sub-axes."""
    ops = (op for op in graph.op_node if op.kind == "shard_map")
    return frozenset(name for op in ops for name in manual_axes(op))


def apply_constraints(work: Workspace) -> None:
    """Apply the user's sharding constraints and inner `shard_map`s to a workspace.

    A constraint on an axis that the mesh does not have becomes a refusal. Raises
    `CaptureError` for a `shard_map` over such an axis.
    """
    seeds: AxisSeeds = {axis: [] for axis in work.mesh.axes}
    manual: list[tuple[Node, str]] = []
    for op, node in work.graph.op_node.items():
        if has_trait(op.kind, Trait.SHARDING_CONSTRAINT):
            _add_seeds(work, op, node, seeds)
        elif op.kind == "shard_map":
            manual += _fix_manual(work, op, node)
    # All are fixed before one is propagated, which could reach another of them.
    for node, axis in manual:
        work.propagator.spread(node, axis)
    for axis, of_axis in seeds.items():
        work.cut(of_axis, axis, CONSTRAINT)
    for op, node in work.graph.op_node.items():
        if has_trait(op.kind, Trait.SHARDING_CONSTRAINT):
            _block_unused_axes(work, op, node)


def _add_seeds(work: Workspace, op: Op, node: Node, seeds: AxisSeeds) -> None:
    """Add the dims that a constraint shards to `seeds`, or refusals."""
    sizes = _axis_sizes(op)
    where = f"{op.kind} ({op.source})"
    for dim, axes in enumerate(spec_axes(_spec(op), len(op.results[0].shape))):
        for axis in axes:
            if sizes.get(axis) == 1:
                continue
            if axis in seeds:
                seeds[axis].append((where, node, dim))
            else:
                why = "this axis is not in the mesh"
                work.refusals.append(Refusal(where, axis, why))


def _block_unused_axes(work: Workspace, op: Op, node: Node) -> None:
    """Forbid tactics to shard a constrained value along axes that its constraint omits.

    If the constraint has an unconstrained dim, all axes stay open to tactics.
    """
    if PartitionSpec.UNCONSTRAINED in _spec(op) or op.params.get("unconstrained_dims"):
        return
    for axis, size in _axis_sizes(op).items():
        if size > 1 and axis in work.mesh.axes and not work.is_cut(node, axis):
            work.block([(op.kind, node)], [axis])


def _axis_sizes(op: Op) -> Mapping[str, int]:
    """The axis sizes of a constraint's own mesh; empty if it has none.

    An axis of size 1 there is ignored, since the program was written for one device.
    """
    mesh: Any = getattr(op.params.get("sharding"), "mesh", None)
    return {} if mesh is None else dict(mesh.shape)


def _spec(op: Op) -> tuple[Any, ...]:
    """The entries of a constraint's `PartitionSpec`; empty for other shardings."""
    sharding: Any = op.params.get("sharding")
    is_spec = isinstance(sharding, PartitionSpec)
    return tuple(sharding if is_spec else getattr(sharding, "spec", ()))


def _fix_manual(work: Workspace, op: Op, node: Node) -> list[tuple[Node, str]]:
    """Shard a user's `shard_map` exactly as its specs say; forbid other axes.

    Returns the node with each axis along which its sharding is to be propagated.
    """
    sizes: Mapping[str, int] = manual_axes(op)
    ours = work.mesh.shape
    wrong = [f"{a}={n}" for a, n in sizes.items() if ours.get(a) != n]
    if wrong:
        # JAX turns a pmap into a shard_map that has no source line.
        what = (
            f"the shard_map at {op.source}" if op.source else "a pmap in the function"
        )
        raise CaptureError(
            f"{what} works over {', '.join(wrong)}, but the mesh is {work.mesh}; wanted a "
            f"mesh with these axes, such as {dict(sizes)}, and more axes if need be; or "
            f"partition the function without its {what.split()[1]}"
        )
    used = {
        a for spec in (*_specs(op, "in_specs"), *_specs(op, "out_specs")) for a in spec
    }
    state = work.state
    for factor, axis in enumerate(sizes):
        if axis in used:
            state.assign(node, axis, factor, Cause("tactic", _SHARD_MAP))
    work.block([("shard_map", node)], [a for a in ours if a not in used])
    return [(node, axis) for axis in sizes if axis in used]


def _specs(op: Op, which: str) -> list[tuple[str, ...]]:
    specs: Any = op.params[which]
    return [
        tuple(a for axes in spec_axes(s, len(tuple(s))) for a in axes) for s in specs
    ]
