"""Tracing of one dim of a value: back to the input it comes from, or on to its readers.

Both directions pass through nodes that preserve the dim: casts, transposes, reshapes,
slices of other dims, and arrays that enter or leave loops and branches.
"""

from meshwright.partitioner.propagate import Graph, Node
from meshwright.partitioner.propagate.graph import Port
from meshwright.program.rules.rule import Dims


def leaf_dim(graph: Graph, value: int, dim: int) -> tuple[Node, int] | None:
    """The input's node from which a dim of a value comes, and the input's dim.

    `None` if the dim comes from no input.
    """
    seen: set[int] = set()
    while value not in seen:
        seen.add(value)
        node = graph.nodes[graph.producer[value]]
        if node.input_position is not None:
            return node, dim
        factor = major(dims_of(node.outs, value)[dim])
        if factor is None:
            return None
        found = next(
            ((v, d) for v, dims in node.ins if (d := dim_of(dims, factor)) is not None),
            None,
        )
        if found is None:
            return None
        value, dim = found
    return None


def is_open(graph: Graph, node: Node, dim: int) -> bool:
    """Whether no reader prevents that a dim of a node's result is sharded.

    A scan over stacked layers, or an index into them, needs their dim unsharded, and so
    does a sort along it, but for an exchange. A concatenation along the dim is no obstacle
    if its own result has none. Readers are searched only through concatenations and views.
    """
    todo = [(node.outs[0][0], dim)]
    seen: set[tuple[int, int]] = set()
    while todo:
        value, dim = todo.pop()
        if (value, dim) in seen:
            continue
        seen.add((value, dim))
        for index in graph.consumers[value]:
            reader = graph.nodes[index]
            if reader.input_position is not None:
                continue
            for number, dims in reader.ins:
                if number != value:
                    continue
                factor = major(dims[dim])
                if factor is None and reader.label == "concatenate":
                    todo.append((reader.outs[0][0], dim))
                elif factor is None or _is_sorted(reader, factor):
                    return False
                elif _is_view(graph, reader):
                    made = [(v, dim_of(dims, factor)) for v, dims in reader.outs]
                    todo += [(v, d) for v, d in made if d is not None]
    return True


def is_key(graph: Graph, node: Node) -> bool:
    """Whether an input is a PRNG key: of key dtype, or uint32 that becomes a key."""
    value, _ = node.outs[0]
    dtype = graph.values[value].dtype
    if dtype.startswith("key<"):
        return True
    if dtype != "uint32":
        return False
    todo, seen = [value], {value}
    while todo:
        for index in graph.consumers[todo.pop()]:
            reader = graph.nodes[index]
            if reader.op is not None and reader.op.kind == "random_wrap":
                return True
            if reader.input_position is None and _is_view(graph, reader):
                new = [v for v, _ in reader.outs if v not in seen]
                seen.update(new)
                todo += new
    return False


def dims_of(ports: tuple[Port, ...], value: int) -> Dims:
    """The factors of each dim of a value, from a node's operands or results."""
    return next(dims for number, dims in ports if number == value)


def dim_of(dims: Dims, factor: int) -> int | None:
    """The dim whose most major factor is `factor`; `None` if there is none."""
    return next((d for d, fs in enumerate(dims) if fs and fs[0] == factor), None)


def major(factors: tuple[int, ...]) -> int | None:
    """The most major factor of a dim, which is sharded first.

    `None` if the dim has no factors and so cannot be sharded.
    """
    return factors[0] if factors else None


def _is_sorted(node: Node, factor: int) -> bool:
    """Whether a node sorts along a factor."""
    return (
        node.label == "sort" and node.rule is not None and factor in node.rule.special
    )


def _is_view(graph: Graph, node: Node) -> bool:
    """Whether a node is an array entering or leaving a loop, or an op on one array."""
    arrays = [v for v, _ in node.ins if graph.values[v].shape]
    return node.wire is not None or len(arrays) == 1
