"""Ties: outputs of a function that become inputs of its next call, like weights."""

from collections.abc import Collection, Iterator
from typing import Any

import jax

from meshwright.program.ir import Program


def find_ties(
    in_tree: Any, out_tree: Any, program: Program, donated: Collection[int]
) -> dict[int, int]:
    """The position of the input that each output becomes in the next call.

    Keyed by output position. A subtree of the result and a subtree of the arguments
    count as the same state if their structure, shapes and dtypes are equal. Subtrees
    are searched through tuples and lists, and the first match wins. A single array must
    also be donated, since its shape alone proves too little.
    """
    inputs = [
        part
        for start, argument in _arguments(in_tree)
        for part in _parts(argument, start)
    ]
    ties: dict[int, int] = {}
    used: set[int] = set()
    for start, tree in _parts(out_tree, 0):
        if any(start + i in ties for i in range(tree.num_leaves)):
            continue
        for in_start, part in inputs:
            span = range(part.num_leaves)
            if part != tree or not used.isdisjoint(in_start + i for i in span):
                continue
            if jax.tree_util.treedef_is_leaf(part) and in_start not in donated:
                continue
            outputs = program.outputs[start : start + len(span)]
            values = program.inputs[in_start : in_start + len(span)]
            pairs = zip(outputs, values, strict=True)
            if all((a.shape, a.dtype) == (b.shape, b.dtype) for a, b in pairs):
                ties.update({start + i: in_start + i for i in span})
                used.update(in_start + i for i in span)
                break
    return ties


def _arguments(in_tree: Any) -> Iterator[tuple[int, Any]]:
    """Each argument in an (args, kwargs) tree: number of its first leaf, structure."""
    start = 0
    for group in in_tree.children():
        for argument in group.children():
            yield start, argument
            start += argument.num_leaves


def _parts(tree: Any, start: int) -> Iterator[tuple[int, Any]]:
    """A tree and the subtrees in its tuples and lists: (first leaf, structure) pair."""
    if not tree.num_leaves:
        return
    yield start, tree
    data = tree.node_data()
    if data is None or not issubclass(data[0], tuple | list):
        return
    for child in tree.children():
        yield from _parts(child, start)
        start += child.num_leaves
