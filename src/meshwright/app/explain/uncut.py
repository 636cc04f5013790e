"""The work that a mesh axis does not split, so that all devices along it repeat it.

It is called uncut work, and is given as a share of the program's FLOPs with a reason.
"""

from collections import defaultdict

from meshwright.app.explain.names import ProgramNames
from meshwright.app.record.parts import UncutWork
from meshwright.partitioner.decide import Decided
from meshwright.partitioner.propagate import Node, why_not
from meshwright.program.analysis.executions import op_executions
from meshwright.program.ops import work_of

_LEAST = 0.001
"""Smallest share of all FLOPs at which uncut work is listed."""

_DIMS = 2
"""Most dims that the reason for uncut work names."""


def describe_uncut(decided: Decided) -> tuple[UncutWork, ...]:
    """Records of the work that each mesh axis leaves uncut, the largest share first.

    Ops of one kind and source line are one record.
    """
    work = decided.work
    names = ProgramNames(work, decided.captured.out_paths)
    runs = op_executions(work.graph.program)
    counted = ((op, times * work_of(op).flops) for op, times in runs if not op.bodies)
    flops = [(op, n) for op, n in counted if n]
    total = sum(n for _, n in flops) or 1
    rows: list[UncutWork] = []
    for axis, size in work.mesh.sizes:
        if size == 1:
            continue
        uncut: dict[tuple[str, str], float] = defaultdict(float)
        first: dict[tuple[str, str], Node] = {}
        for op, n in flops:
            node = work.graph.op_node.get(op)
            if node is None or work.is_cut(node, axis):
                continue
            key = op.kind, str(op.source)
            uncut[key] += n / total
            first.setdefault(key, node)
        order = sorted(uncut, key=lambda key: -uncut[key])
        rows += [
            UncutWork(axis, *key, uncut[key], _why(names, first[key], axis))
            for key in order
            if uncut[key] >= _LEAST
        ]
    return tuple(rows)


def _why(names: ProgramNames, node: Node, axis: str) -> str:
    """Text on why an axis does not cut an op."""
    state, work = names.state, names.work
    if node.rule is not None and node.rule.opaque:
        return node.rule.opaque
    for sub_axis in work.sub_axes[axis]:
        if sub_axis in state.blocked[node.index]:
            return "a tactic keeps it whole"
        if (node.index, sub_axis) in state.conflicts:
            return "two of its dims want the axis; see the conflicts"
        for value, dims in node.ins:
            dim = state.dim_on(value, sub_axis)
            if dim is None or dim < 0:
                continue
            whys = (why_not(state, node, sub_axis, f) for f in dims[dim])
            if why := next(filter(None, whys), ""):
                return f"{names.value(value)} is cut, but {why}"
    return f"no tactic cuts it{_odd_dims(names, node, work.mesh.size(axis))}"


def _odd_dims(names: ProgramNames, node: Node, parts: int) -> str:
    """Text that names the largest dims of an op whose size `parts` does not divide."""
    sizes = sorted(enumerate(node.sizes), key=lambda each: -each[1])
    odd = [(f, n) for f, n in sizes if n > 1 and n % parts]
    if not odd:
        return ""
    listed = " or ".join(f"{names.place(node, f)} ({n})" for f, n in odd[:_DIMS])
    return f"; {parts} parts do not divide {listed}"
