"""Shardings that the user's own code fixes: found in a program, and as lines of text."""

from collections.abc import Sequence

from meshwright.app.output.collapse import collapsed
from meshwright.app.record.plan_record import FixedSharding
from meshwright.partitioner.constraints import CODE, CONSTRAINT
from meshwright.partitioner.propagate import Node, join_sub_axes
from meshwright.partitioner.tactics import Workspace
from meshwright.program.ir import Sharding, show_type
from meshwright.program.ops import Trait, has_trait


def find_fixed(work: Workspace) -> tuple[FixedSharding, ...]:
    """The constraints and `shard_map`s in the code that cut a value or forbid a cut of it.

    Those over axes that the mesh does not have, or of size 1, are left out.
    """
    found: list[FixedSharding] = []
    for op, node in work.graph.op_node.items():
        is_constraint = has_trait(op.kind, Trait.SHARDING_CONSTRAINT)
        if not (is_constraint or op.kind == "shard_map") or not node.outs:
            continue
        spec = _spec(work, node)
        blocked = work.state.blocked[node.index]
        whole = tuple(a for a, parts in work.sub_axes.items() if {*parts} & blocked)
        if any(spec) or whole:
            value = op.results[0]
            shown = show_type(value.shape, value.dtype)
            kind = CONSTRAINT if is_constraint else op.kind
            found.append(FixedSharding(kind, str(op.source), shown, spec, whole))
    return tuple(found)


def _spec(work: Workspace, node: Node) -> tuple[tuple[str, ...], ...]:
    """The axes along which the code cuts each dim of the first result."""
    causes = work.state.causes
    fixed = {
        axis
        for axis in work.state.factor_of[node.index]
        if (cause := causes.get((node.index, axis))) and cause.tactic in CODE
    }
    dims = work.state.sharding_at(node, node.outs[0]).dims
    return tuple(
        join_sub_axes(tuple(a for a in axes if a in fixed), work.sub_axes)
        for axes in dims
    )


def show_fixed(fixed: Sequence[FixedSharding]) -> list[str]:
    """A title and one line for each sharding; empty if the code fixes none."""
    if not fixed:
        return []
    lines = [
        f"{each.kind} ({each.source}) {each.value} {Sharding(each.spec)}"
        + (f", whole along {', '.join(map(repr, each.whole))}" if each.whole else "")
        for each in fixed
    ]
    title = "fixed in the code, before any tactic"
    return ["", title, *(f"  {line}" for line in collapsed(lines))]
