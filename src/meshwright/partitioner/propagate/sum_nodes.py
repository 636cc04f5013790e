"""What a node of a graph does with partial sums: it adds, carries or hands them on."""

from meshwright.partitioner.propagate.graph import Node


def linear_sets(node: Node) -> tuple[frozenset[int], ...]:
    """The sets of operands in which a node's op is jointly linear."""
    return node.rule.linear if node.rule is not None and node.op is not None else ()


def is_carry(node: Node) -> bool:
    """Whether a node is the wire of a value that a scan passes to its next iteration."""
    wire = node.wire
    if wire is None or not is_scan(node) or wire.is_stacked:
        return False
    return wire.operand is not None and bool(wire.outputs)


def is_exit(node: Node) -> bool:
    """Whether a node is the wire of a value that only leaves a region.

    A scan stacks such a value; a rematted region or branch returns it.
    """
    op, wire = node.op, node.wire
    if op is None or wire is None or op.kind not in ("scan", "remat", "cond"):
        return False
    return not wire.inputs and wire.operand is None and wire.result is not None


def is_scan(node: Node) -> bool:
    """Whether a node is a scan, or one of its wires."""
    return node.op is not None and node.op.kind == "scan"


def is_mostly_partial(num_partial: int, num_operands: int) -> bool:
    """Whether at least half of the operands of a concatenation are partial, and several.

    Then one reduction of the result replaces one per operand.
    """
    return num_partial > 1 and 2 * num_partial >= num_operands
