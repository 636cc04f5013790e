"""Text that explains the sub-axes (parts of mesh axes) in a plan's shardings."""

from meshwright.app.record.plan_record import PlanRecord
from meshwright.partitioner.propagate.sub_axes import SUB_AXIS, show_axis
from meshwright.partitioner.tactics import Recorded


def explain_sub_axes(plan: PlanRecord) -> str:
    """Text about the sub-axes that shardings use; "" if they use none.

    For example `'data:0' (the first factor of 'data', 8 = 4 x 2)`: a sub-axis of 4 devices.
    """
    sizes: dict[str, int] = {}
    if plan.decided is not None:
        sizes |= plan.decided.work.state.size
    for tactic in plan.recorded:
        if isinstance(tactic, Recorded):
            sizes |= dict(sum(tactic.decisions.sub_axes.values(), ()))
    leaves = (*plan.inputs, *plan.outputs)
    used = {axis for leaf in leaves for axes in leaf.spec for axis in axes}
    return ", ".join(show_axis(a, sizes) for a in sorted(used) if SUB_AXIS in a)
