"""Legality of one cut: the reason why an axis cannot cut a factor of a node, if any.

A dim that an axis does not divide is never padded: it stays whole along that axis. A cut
that a tactic asked for then becomes a refusal with this reason (`Workspace.cut`), and
propagation leaves the dim out.
"""

from meshwright.partitioner.propagate.graph import Node
from meshwright.partitioner.propagate.state import State


def why_not(state: State, node: Node, axis: str, factor: int) -> str | None:
    """One sentence why an axis cannot cut a factor of a node; `None` if it can."""
    if axis in state.blocked[node.index]:
        return f"{node.label} is kept whole along {axis!r}"
    taken = state.factor_of[node.index].get(axis)
    if taken is not None:
        return f"{axis!r} cuts another dim of this {node.label} already"
    size = state.size[axis]
    parts = state.parts(node, factor) * size
    extent = node.sizes[factor]
    least = (node.rule.least or {}).get(factor, 1) if node.rule else 1
    if extent % parts:
        return f"{parts} parts do not divide extent {extent}"
    if extent < parts * least:
        return f"{parts} parts of extent {extent} are smaller than the {least} it needs"
    for value, dims in node.outs if state.scattered else ():
        for dim, factors in enumerate(dims):
            if factor in factors and not state.is_available(value, dim, axis):
                return f"{axis!r} does not divide dim {dim} of the reduce-scattered sum"
    if node.has_products:
        return _why_not_product(state, node, factor)
    return None


def _why_not_product(state: State, node: Node, factor: int) -> str | None:
    """The refusal of a minor factor while its major factors are not fully cut."""
    for _, dims in (*node.ins, *node.outs):
        for factors in dims:
            if factor not in factors or len(factors) == 1:
                continue
            position = factors.index(factor)
            major, minor = factors[:position], factors[position + 1 :]
            if any(state.parts(node, f) != node.sizes[f] for f in major) or any(
                state.axes_of[node.index].get(f) for f in minor
            ):
                return "the cut does not line up with the split of a reshape"
    return None
