"""Kinds of nodes that partial sums pass: linear ops, scan carries, region results.

A node is an op, an input, or the wire of an array into or out of a loop or branch. A
partial sum is a value of which each device holds an addend.
"""

from meshwright.partitioner.propagate.graph import Node


def linear_sets(node: Node) -> tuple[frozenset[int], ...]:
    """The sets of positions of operands in which the node's op is jointly linear.

    An addition is linear in its two operands together, a product in each alone.
    """
    return node.rule.linear if node.rule is not None and node.op is not None else ()


def is_carry(node: Node) -> bool:
    """Whether a node is the carry of a scan."""
    wire = node.wire
    if wire is None or not is_scan(node) or wire.is_stacked:
        return False
    return wire.operand is not None and bool(wire.outputs)


def is_total(node: Node) -> bool:
    """Whether a node adds up the results of repeated runs of the program."""
    return node.op is not None and node.op.kind == "total"


def is_exit(node: Node) -> bool:
    """Whether a node is an array that leaves a region and did not enter it.

    A scan stacks such an array; a `jax.checkpoint` region or branch returns it.
    """
    op, wire = node.op, node.wire
    if op is None or wire is None or op.kind not in ("scan", "remat", "cond"):
        return False
    return not wire.inputs and wire.operand is None and wire.result is not None


def is_scan(node: Node) -> bool:
    """Whether a node is a scan, or one of the arrays that enter or leave it."""
    return node.op is not None and node.op.kind == "scan"
