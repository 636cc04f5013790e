"""A plan as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright.plan.plan import Plan


def show_plan(plan: Plan) -> str:
    """A page: mesh, counts tactic by tactic, shardings of the inputs, largest moves."""
    lines = [f"mesh {plan.mesh}, gather {plan.gather.value}", ""]
    kinds = list(plan.counts)
    lines.append(f"{'after':40}" + "".join(f"{kind:>15}" for kind in kinds))
    for step in plan.steps:
        name = step.tactic if len(step.tactic) <= 38 else step.tactic[:35] + "..."
        lines.append(f"{name:40}" + "".join(f"{step.counts[k]:>15}" for k in kinds))
    lines += ["", "inputs"]
    lines += [f"  {leaf}" for leaf in plan.inputs if any(leaf.spec)]
    whole = sum(not any(leaf.spec) for leaf in plan.inputs)
    lines.append(f"  {whole} more, whole on every device")
    largest = sorted(plan.collectives, key=lambda c: -c.bytes * c.executions)[:10]
    if largest:
        lines += ["", "largest collectives (bytes per device, times per step)"]
        lines += [
            f"  {c.kind:14} {','.join(c.axes):12} {c.bytes:>14,} x{c.executions:<5} {c.source}"
            for c in largest
        ]
    if plan.whole:
        lines += ["", "stay whole for want of a rule"]
        lines += [f"  {text}" for text in plan.whole]
    return "\n".join(lines)
