"""Candidates for the batch dim of a program: dims of its data, and rows of a product.

The first guess is the dim of the data that a training loop would call its batch. The
guess can be wrong: a history of 1,024 numbers is no batch, and time comes first in some
recurrent nets. So `data_parallel` shards it on trial, and compares the share of the
FLOPs that this divides with that of other dims.
"""

from collections import Counter
from collections.abc import Iterator

from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.cut_work import flops_of
from meshwright.partitioner.structure.products import find_products
from meshwright.partitioner.structure.views import dim_of, is_open
from meshwright.partitioner.structure.workspace import Workspace

type Leaves = list[tuple[str, Node]]
type Seeds = list[tuple[str, Node, int]]
"""Dims to shard: (path or source line, node of the graph, dim of the node's result)."""


def guessed_batch(work: Workspace, leaves: Leaves, axis: str) -> Seeds:
    """The batch dims of those input leaves whose batch has the most common extent.

    The batch dim of a leaf is dim 0, or dim 1 if readers need all of dim 0 and not of
    dim 1.
    """
    seeds = [(path, node, _batch_dim(work, node)) for path, node in leaves]
    extents = [work.value(node).shape[dim] for _, node, dim in seeds]
    if not extents:
        return []
    count = Counter(extents)
    size = work.mesh.size(axis)
    ranks = [len(work.value(node).shape) for _, node, _ in seeds]
    _, batch = max(
        zip(ranks, extents, strict=True),
        key=lambda e: (count[e[1]], e[1] % size == 0, e[0]),
    )
    chosen = zip(seeds, extents, strict=True)
    return [seed for seed, extent in chosen if extent == batch]


def data_dims(work: Workspace, leaves: Leaves, axis: str) -> Iterator[Seeds]:
    """Candidates for the batch: for each position and extent, all such data dims.

    Only extents that the axis divides are candidates.
    """
    size = work.mesh.size(axis)
    shapes = [work.value(node).shape for _, node in leaves]
    dims = dict.fromkeys(pair for shape in shapes for pair in enumerate(shape))
    for dim, extent in sorted(dims, key=lambda pair: pair[0]):
        if extent % size:
            continue
        seeds: Seeds = []
        for (path, node), shape in zip(leaves, shapes, strict=True):
            if shape[dim : dim + 1] == (extent,):
                seeds.append((path, node, dim))
            elif extent in shape:
                seeds.append((path, node, shape.index(extent)))
        yield seeds


def product_rows(work: Workspace, leaves: Leaves, axis: str) -> Iterator[Seeds]:
    """Candidates for the batch: each dim of the largest product that its weight lacks.

    No input has this dim if a step divides its data into minibatches. Products of the
    same source line and form, as in an unrolled loop over minibatches, are sharded
    alike.
    """
    del leaves  # they are cut only as propagation finds
    size = work.mesh.size(axis)
    flops = flops_of(work.graph)
    products = find_products(work)
    if not products:
        return
    largest = max(products, key=lambda product: flops.get(product.node, 0))
    node = largest.node
    alike = [
        other
        for other in work.graph.nodes
        if other.signature == node.signature and str(other.source) == str(node.source)
    ]
    special = node.rule.special if node.rule is not None else frozenset[int]()
    for factor in largest.rows:
        dim = dim_of(node.outs[0][1], factor)
        if dim is not None and factor not in special and node.sizes[factor] % size == 0:
            yield [(f"{node.label} ({node.source})", other, dim) for other in alike]


def _batch_dim(work: Workspace, node: Node) -> int:
    """The batch dim of a leaf: 1 if readers need all of dim 0, not of 1; else 0."""
    if len(work.value(node).shape) < 2 or is_open(work.graph, node, 0):
        return 0
    return 1 if is_open(work.graph, node, 1) else 0
