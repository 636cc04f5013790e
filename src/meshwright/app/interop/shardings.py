"""JAX's shardings of a plan's arguments and results."""

from collections.abc import Sequence
from typing import Any

from meshwright.app.record.plan_record import Leaf, PlanRecord
from meshwright.machine import Mesh
from meshwright.partitioner.propagate.sub_axes import SUB_AXIS
from meshwright.partitioner.tactics import Recorded
from meshwright.program.ir import Sharding
from meshwright.run.local import jax_mesh, named_shardings


def named_leaves(plan: PlanRecord, leaves: Sequence[Leaf]) -> tuple[Any, ...]:
    """The `NamedSharding` of each leaf, over sub-axes if some leaf needs them."""
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
