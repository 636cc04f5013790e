"""Sequence parallelism: activations between Megatron's pairs are sharded by sequence.

Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
MLSys 2023. Each all-reduce becomes a reduce-scatter and an all-gather, and norms,
residuals and dropout are not computed on every device any more.
"""

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.products import Product, find_products
from meshwright.partitioner.structure.views import dim_of, dims_of
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.partitioner.tactics.tactic import AxisTactic


def sequence_parallel(axis: str) -> AxisTactic:
    """Shard activations between the pairs of `megatron(axis)` along the sequence.

    before: x[B, S, D] + partial[B, S, D], all-reduced
    after: both sharded on S; the sum is a reduce-scatter, and gathered for the next
        matmul

    The sequence is the last dim of an activation that is neither contracted nor cut
    yet; if all are sharded, the last one that the axis still divides. When the tactic
    is applied, it raises `TacticError` if no such pair is sharded.
    """
    return AxisTactic(f"sequence_parallel({axis!r})", axis, _cut_sums)


def _cut_sums(work: Workspace, axis: str, tactic: str) -> None:
    """Shard the first reader of the partial sum of each matmul sharded by rows."""
    products = find_products(work)
    seeds = [
        seed
        for product in products
        if _is_row(work, product, axis)
        if (seed := _seed(work, product, axis)) is not None
    ]
    if not seeds:
        raise TacticError(
            f"{tactic} finds no sum of a matmul left open along {axis!r} with a "
            f"dim to cut, in {len(products)} products with weights; "
            f"megatron({axis!r}) makes such sums and comes before"
        )
    work.cut(seeds, axis, tactic)


def _is_row(work: Workspace, product: Product, axis: str) -> bool:
    """Whether the axis shards a contracted dim of a product."""
    cut = work.state.factor_of[product.node.index]
    return any(cut.get(u) in product.summed for u in work.sub_axes[axis])


def _seed(work: Workspace, product: Product, axis: str) -> tuple[str, Node, int] | None:
    """(source, reader, dim of its result) to shard for a product, if there is one."""
    value, dims = product.result
    size = work.mesh.size(axis)
    found = [dim_of(dims, f) for f in reversed(product.rows)]
    rows = [d for d in found if d is not None]
    shape = work.value(product.node).shape
    rows.sort(key=lambda d: work.local_extent(product.node, d) < shape[d])
    for dim in rows:
        if work.local_extent(product.node, dim) % size:
            continue
        for index in sorted(work.graph.consumers[value]):
            seed = _cut_of(work.graph.nodes[index], value, dim)
            if seed is not None and not work.is_cut(seed[1], axis):
                return seed
    return None


def _cut_of(reader: Node, value: int, dim: int) -> tuple[str, Node, int] | None:
    """(source, reader, dim of the reader's result) for a dim of one of its operands.

    `None` if the result does not have the dim.
    """
    factors = dims_of(reader.ins, value)[dim]
    if not factors or not reader.outs:
        return None
    made = dim_of(reader.outs[0][1], factors[0])
    return None if made is None else (str(reader.source), reader, made)
