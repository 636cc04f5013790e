"""Sequence parallelism: activations between the pairs of Megatron are cut by sequence.

Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models",
MLSys 2023. Each all-reduce becomes a reduce-scatter and an all-gather, and norms,
residuals and dropout are no longer computed on every device.
"""

from __future__ import annotations

from dataclasses import dataclass

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.products import Product, find_products
from meshwright.partitioner.structure.structure import find_structure
from meshwright.partitioner.structure.views import dim_of
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.partitioner.tactics.tactic import TacticKind


@dataclass(frozen=True, slots=True)
class SequenceParallel:
    """Cut the partial sums of matmuls that are cut by rows, along the sequence.

    before: x[B, S, D] + partial[B, S, D], all-reduced
    after: both cut on S; the sum is a reduce-scatter, and gathered for the next matmul

    The sequence is the last dim of an activation that is neither contracted nor cut yet;
    if all are cut, the last one that the axis still divides.
    """

    axis: str
    kind = TacticKind.STRATEGY
    rewrite = None

    @property
    def axes(self) -> tuple[str, ...]:
        return (self.axis,)

    def apply(self, work: Workspace) -> None:
        """Cut the first consumer of every such sum, all together, and propagate."""
        work.mesh.require(self.axis)
        products = find_products(work, find_structure(work))
        seeds = [
            seed
            for product in products
            if self._is_row(work, product)
            if (seed := self._seed(work, product)) is not None
        ]
        if not seeds:
            raise TacticError(
                f"{self} finds no sum of a matmul left open along {self.axis!r} with a "
                f"dim to cut, in {len(products)} products with weights; "
                f"megatron({self.axis!r}) makes such sums and comes before"
            )
        work.cut(seeds, self.axis, str(self))

    def _is_row(self, work: Workspace, product: Product) -> bool:
        """Whether the axis cuts a contracted dim of a product."""
        cut = work.state.factor_of[product.node.index]
        return any(cut.get(u) in product.summed for u in work.sub_axes[self.axis])

    def _seed(self, work: Workspace, product: Product) -> tuple[str, Node, int] | None:
        """(source, consumer, dim) to cut; `None` if no consumer can be cut there."""
        value, dims = product.result
        size = work.mesh.size(self.axis)
        found = [dim_of(dims, f) for f in reversed(product.rows)]
        rows = [d for d in found if d is not None]
        shape = work.value(product.node).shape
        rows.sort(key=lambda d: work.local_extent(product.node, d) < shape[d])
        for dim in rows:
            if work.local_extent(product.node, dim) % size:
                continue
            for index in sorted(work.graph.consumers[value]):
                seed = _cut_of(work, work.graph.nodes[index], value, dim)
                if seed is not None and not work.is_cut(seed[1], self.axis):
                    return seed
        return None

    def __str__(self) -> str:
        return f"sequence_parallel({self.axis!r})"


def sequence_parallel(axis: str) -> SequenceParallel:
    """Cut activations between the pairs of `megatron(axis)` by sequence.

    Raises `TacticError` where no such pair is cut, when the tactic is applied.
    """
    return SequenceParallel(axis)


def _cut_of(
    work: Workspace, reader: Node, value: int, dim: int
) -> tuple[str, Node, int] | None:
    """(source, reader, the dim of its result that a dim of its operand becomes)."""
    factors = next(dims for number, dims in reader.ins if number == value)[dim]
    if not factors or not reader.outs:
        return None
    made = dim_of(reader.outs[0][1], factors[0])
    return None if made is None else (str(reader.source), reader, made)
