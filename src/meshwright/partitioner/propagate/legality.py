"""Legality of sharding: the reason why an axis cannot shard a factor of a node, if any.

A factor is a set of dims of an op that are sharded together. A dim whose size is not a
multiple of the axis's is never padded; the axis does not shard it. If a tactic asked
for it, it becomes a refusal with this reason (`Workspace.cut`); propagation just skips
the dim.
"""

from meshwright.partitioner.propagate.graph import Node
from meshwright.partitioner.propagate.state import State
from meshwright.partitioner.propagate.sub_axes import show_axis


def why_not(state: State, node: Node, axis: str, factor: int) -> str | None:
    """The reason, in one sentence, why an axis cannot shard a factor of a node.

    `None` if the axis can shard it.
    """
    if axis in state.blocked[node.index]:
        return f"{node.label} is kept whole along {show_axis(axis, state.size)}"
    if axis in state.factor_of[node.index]:
        named = show_axis(axis, state.size)
        return f"{named} cuts another dim of this {node.label} already"
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
                named = show_axis(axis, state.size)
                return f"{named} does not divide dim {dim} of the reduce-scattered sum"
    if node.has_products:
        return _why_not_product(state, node, factor)
    return None


def _why_not_product(state: State, node: Node, factor: int) -> str | None:
    """The reason why a factor cannot be sharded if some dim is a product of factors.

    A reshape that merges dims makes such a dim. A shard of it is contiguous only if all
    more major factors are sharded completely, and all more minor ones not at all.
    `None` if that holds.
    """
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
