"""Load of NCCL's double binary tree, by which it runs all-reduces between nodes.

Two binary trees each reduce half of the bytes to a root and broadcast them from there.
Inner nodes of one tree are leaves of the other (Sanders, Speck, Traeff, "Two-Tree
Algorithms for Full Bandwidth Broadcast, Reduction and Scan", 2009). With few nodes the
load is still uneven: 1 of the bytes for two nodes, 2 for four.
"""

from functools import cache


@cache
def double_tree_load(num_nodes: int) -> float:
    """Bytes out of the busiest node, per byte that is reduced.

    A node sends half of the bytes to its parent in each tree, and half to each child.
    """
    sent = [0.0] * num_nodes
    for node in range(1, num_nodes):
        parent = _parent(node, num_nodes)
        for a, b in ((node, parent), _mirrored(node, parent, num_nodes)):
            sent[a] += 0.5
            sent[b] += 0.5
    return max(sent)


def _parent(node: int, num_nodes: int) -> int:
    """The parent in the first tree, as in NCCL's `ncclGetBtree`."""
    bit = node & -node
    parent = (node ^ bit) | (bit << 1)
    return node ^ bit if parent >= num_nodes else parent


def _mirrored(node: int, parent: int, num_nodes: int) -> tuple[int, int]:
    """The edge in the second tree: mirrored for even numbers of nodes, else shifted."""
    if num_nodes % 2 == 0:
        return num_nodes - 1 - node, num_nodes - 1 - parent
    return (node + 1) % num_nodes, (parent + 1) % num_nodes
