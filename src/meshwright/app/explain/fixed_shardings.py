"""Shardings in the user's code that no tactic can change: found, and shown as text.

They come from sharding constraints and `shard_map`.
"""

from collections.abc import Sequence

from meshwright.app.output.collapse import collapsed
from meshwright.app.record.parts import FixedSharding
from meshwright.partitioner.constraints import CODE, CONSTRAINT
from meshwright.partitioner.propagate import Node, join_sub_axes
from meshwright.partitioner.tactics import Workspace
from meshwright.program.ir import Sharding, show_type
from meshwright.program.ops import Trait, has_trait


def find_fixed(work: Workspace) -> tuple[FixedSharding, ...]:
    """The sharding constraints and `shard_map`s in the user's code that have an effect.

    They shard a value, or forbid that an axis shards it. Left out are those over axes that
    the mesh does not have, or that have size 1.
    """
    shardings: list[FixedSharding] = []
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
            shardings.append(FixedSharding(kind, str(op.source), shown, spec, whole))
    return tuple(shardings)


def _spec(work: Workspace, node: Node) -> tuple[tuple[str, ...], ...]:
    """The axes by which the user's code splits each dim of a node's first result."""
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
    """Lines of text: a title, and one line per fixed sharding; empty if there are none."""
    if not fixed:
        return []
    lines = [
        f"{each.kind} ({each.source}) {each.value} {Sharding(each.spec)}"
        + (f", whole along {', '.join(map(repr, each.whole))}" if each.whole else "")
        for each in fixed
    ]
    title = "fixed in the code, before any tactic"
    return ["", title, *(f"  {line}" for line in collapsed(lines))]
