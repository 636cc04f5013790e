"""Ties: outputs of a function that become inputs of its next call, like weights."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import jax

from meshwright.program.analysis.updates import (
    elementwise_sources,
    gradient_values,
    update_path,
)
from meshwright.program.ir import Program, Value


def find_ties(
    in_tree: Any, out_tree: Any, program: Program, donated: Collection[int]
) -> dict[int, int]:
    """The position of the input that each output becomes in the next call.

    Keyed by output position. A subtree of the result and a subtree of the arguments
    count as the same state if their structure, shapes and dtypes are equal. Subtrees
    are searched through tuples and lists, and the first match wins. The shape of a single
    array proves too little: it must also be donated, or be updated by a gradient.
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
    return ties | _gradient_ties(program, ties)


def _gradient_ties(program: Program, ties: Mapping[int, int]) -> dict[int, int]:
    """Ties of further outputs that are an input plus something that a gradient gives.

    Elementwise ops of one shape must lead from the input to the output. An output that a
    program with gradients hands back unchanged is tied to itself. Outputs with fewest such
    inputs choose first: moments depend on no parameter in this way, but the new parameter
    on its moments.
    """
    gradients = gradient_values(program)
    if not gradients:
        return {}
    sources = elementwise_sources(program)
    free = [i for i in range(len(program.inputs)) if i not in {*ties.values()}]
    choices: dict[int, list[int]] = {}
    for o, output in enumerate(program.outputs):
        if o in ties or not isinstance(output, Value) or not output.shape:
            continue
        if output in gradients:
            path = update_path(sources, output)
            choices[o] = [i for i in free if program.inputs[i] in path]
        elif output in program.inputs:
            choices[o] = [i for i in free if program.inputs[i] is output]
    found: dict[int, int] = {}
    while choices:
        o = min(choices, key=lambda o: len(choices[o]))
        mine = [i for i in choices.pop(o) if i not in found.values()]
        mine = [i for i in mine if program.inputs[i].dtype == program.outputs[o].dtype]
        if mine:
            found[o] = mine[0]
            for left in choices.values():
                left[:] = [i for i in left if i != mine[0]]
    return found


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
