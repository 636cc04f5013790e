"""JAX's shardings of a plan's arguments and results."""

from collections.abc import Sequence
from typing import Any

import jax

from meshwright.app.record.parts import Leaf
from meshwright.app.record.plan_record import PlanRecord
from meshwright.machine import Mesh
from meshwright.partitioner.propagate.sub_axes import SUB_AXIS
from meshwright.partitioner.tactics import Recorded
from meshwright.program.ir import Sharding
from meshwright.run.local.spmd import jax_mesh, named_shardings


def argument_shardings(plan: PlanRecord) -> tuple[Any, ...]:
    """The JAX shardings of the positional arguments: a tuple of one tree per argument.

    For a plan read from JSON, it is a flat tuple over all leaves.
    """
    flat = _named_leaves(plan, plan.inputs)
    if plan.decided is None:
        return flat
    args, _ = jax.tree_util.tree_unflatten(plan.decided.captured.in_tree, flat)
    return args


def result_shardings(plan: PlanRecord) -> Any:
    """The JAX shardings of the result, in the result's tree structure.

    For a plan read from JSON, it is a flat tuple over all leaves.
    """
    flat = _named_leaves(plan, plan.outputs)
    if plan.decided is None:
        return flat
    return jax.tree_util.tree_unflatten(plan.decided.captured.out_tree, flat)


def _named_leaves(plan: PlanRecord, leaves: Sequence[Leaf]) -> tuple[Any, ...]:
    """The `NamedSharding` of each leaf; its mesh has sub-axes if some leaf needs them."""
    mesh = plan.mesh
    if any(SUB_AXIS in a for leaf in leaves for axes in leaf.spec for a in axes):
        mesh = _mesh_of_sub_axes(plan)
    return named_shardings(jax_mesh(mesh), [Sharding(leaf.spec) for leaf in leaves])


def _mesh_of_sub_axes(plan: PlanRecord) -> Mesh:
    if plan.decided is not None:
        return plan.decided.lowered.mesh
    (recorded,) = (t for t in plan.recorded if isinstance(t, Recorded))
    parts = recorded.decisions.sub_axes.values()
    return Mesh(dict(part for each in parts for part in each))
