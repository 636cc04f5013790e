"""Megatron: pairs of matmuls, the first sharded by columns, the second by rows.

In a network without such pairs, they are pairs of convolutions, the first sharded by
output features, the second by input features.

Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using
Model Parallelism", 2019. Activations between the two are sharded and need no
communication; the second product gives a partial sum.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.cut_work import (
    gathered_values,
    new_cuts,
    note_uncut_work,
)
from meshwright.partitioner.structure.products import Product, find_products
from meshwright.partitioner.structure.vocabulary.cut_vocabulary import cut_vocabulary
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.partitioner.tactics.role_names import Patterns, RoleNames, role_names
from meshwright.partitioner.tactics.tactic import AxisTactic
from meshwright.program.ir import num_bytes


def megatron(
    axis: str,
    params: Patterns = None,
    inputs: Patterns = None,
    *,
    vocabulary: bool = True,
) -> AxisTactic:
    """Shard pairs of matmuls by columns and rows along an axis: `megatron("model")`.

    Pairs of convolutions are sharded likewise if there are no pairs of matmuls.

    before: x[B, D] @ up[D, F], gelu, @ down[F, D]
    after: up by dim 1 and down by dim 0, one all-reduce of [B, D]

    Weights are tried in program order, dim by dim. The sharding is propagated, and
    undone unless it shards some later weight by rows, needs no gather in between, and
    leads to partial sums no larger than the results that it divides. This also finds
    attention heads, with fused weights or not.

    Then the last product and the table of embeddings are sharded along the vocabulary,
    and the loss is computed on parts of it. `docs/tactics.md` says when. When the tactic is
    applied, it raises `TacticError` if there is no pair.
    params, inputs: patterns of weights and of data, where `docs/tactics.md` would not find
        them.
    vocabulary: whether to shard the vocabulary.
    """
    names = role_names("megatron", params, inputs)
    options = names.options + ("" if vocabulary else ", vocabulary=False")
    cut_fn = partial(_cut_all, names, vocabulary)
    return AxisTactic(f"megatron({axis!r}{options})", axis, cut_fn)


_MATMULS = ("dot_general", "ragged_dot_general")
_CONVOLUTIONS = ("conv_general_dilated",)


def cut_pairs(
    work: Workspace,
    axis: str,
    tactic: str,
    most_moved: float = 1.0,
    with_vocabulary: bool = True,
) -> None:
    """Shard all Megatron pairs among matmuls with weights, then the vocabulary.

    If there are no pairs of matmuls, those of convolutions are sharded. Each pair is
    propagated before the next is tried.

    most_moved: bytes of partial sums, relative to the results that a pair divides, up to
        which it is sharded.
    Raises `TacticError` if there is no pair.
    """
    found = find_products(work)
    pairs: list[Product] = []
    for kinds in (_MATMULS, _CONVOLUTIONS):
        products = [p for p in found if p.node.op and p.node.op.kind in kinds]
        by_index = {p.node.index: p for p in products}
        search = _Search(work, axis, tactic, most_moved, by_index)
        pairs = pairs or [product for product in products if search.attempt(product)]
    if not pairs:
        products = [p for p in found if p.node.op and p.node.op.kind in _MATMULS]
        ops = ", ".join(dict.fromkeys(str(p.node.source) for p in products[:4]))
        raise TacticError(
            f"{tactic} finds no pair of matmuls with weights, the second of which "
            "sums what the first makes, with nothing gathered between; there are "
            f"{len(products)} matmuls with weights"
            + (f" ({ops})" if ops else "")
            + "; params= names weights that were not found"
        )
    if with_vocabulary:
        cut_vocabulary(work, found, axis, tactic)


def _cut_all(
    names: RoleNames, vocabulary: bool, work: Workspace, axis: str, tactic: str
) -> None:
    """Shard pairs and vocabulary, and warn if much of the FLOPs stays undivided."""
    names.find_roles(work)
    cut_pairs(work, axis, tactic, with_vocabulary=vocabulary)
    parts = work.mesh.size(axis)
    advice = "name cuts by mw.cut"
    if parts > 2:
        advice = (
            f"an axis of fewer parts than the {parts} of {axis!r} may divide more, such as "
            f"the number of attention heads, or {advice}"
        )
    note_uncut_work(work, axis, tactic, advice)


@dataclass(frozen=True, slots=True)
class _TrialBytes:
    """Bytes in the forward pass that one trial affects; a heuristic, not a cost model.

    The tactic has no machine, so that it compares bytes instead of seconds. All are
    bytes of unsharded values.
    made: results of the matmuls sharded by columns. closed: of those sharded by rows.
    summed: other partial sums. gathered: values that some op needs unsharded, or
        sharded on another dim.
    """

    made: int
    closed: int
    summed: int
    gathered: int

    def is_worth_it(self, most_moved: float) -> bool:
        """Whether a pair is found, and communicates few bytes for what it divides."""
        moved = self.closed + self.summed
        few = moved <= most_moved * self.made
        return self.closed > 0 and not self.gathered and few


@dataclass
class _Search:
    """Tries shardings on one workspace, and remembers which of them failed.

    products: the products among which pairs are searched, by the index of their node.
    refused: (index of a node, factor) of products by columns in trials that failed.
    """

    work: Workspace
    axis: str
    tactic: str
    most_moved: float
    products: Mapping[int, Product]
    refused: set[tuple[int, int]] = field(default_factory=set[tuple[int, int]])

    @cached_property
    def last(self) -> int:
        """The index of the last product, up to which trials are measured."""
        return max(self.products, default=-1)

    def attempt(self, product: Product) -> bool:
        """Shard the best free dim of a weight and return whether there is one."""
        if self.work.is_cut(product.node, self.axis):
            return False
        best: tuple[int, tuple[str, Node, int]] | None = None
        for factor in product.free:
            seed = product.leaf(self.work, factor)
            if (product.node.index, factor) in self.refused or seed is None:
                continue
            mark = self.work.mark()
            cost, columns = self._try(seed)
            is_worth_it = cost is not None and cost.is_worth_it(self.most_moved)
            if cost is not None and is_worth_it and not cost.summed:
                return True
            self.work.rollback(mark)
            if cost is None or not is_worth_it:
                self.refused |= columns
            elif best is None or cost.summed < best[0]:
                best = (cost.summed, seed)
        if best is not None:
            self.work.cut([best[1]], self.axis, self.tactic)
        return best is not None

    def _try(
        self, seed: tuple[str, Node, int]
    ) -> tuple[_TrialBytes | None, set[tuple[int, int]]]:
        """Shard a dim on trial; returns the bytes affected, and matmuls by columns.

        `None` in place of the bytes if the sharding is not possible.
        """
        state = self.work.state
        before = len(state.causes)
        self.work.cut([seed], self.axis, self.tactic)
        if not state.factor_of[seed[1].index].keys() >= {
            *self.work.sub_axes[self.axis]
        }:
            return None, set()
        made = closed = summed = gathered = 0
        columns: set[tuple[int, int]] = set()
        for node, sub_axis in new_cuts(self.work, before):
            index = node.index
            if index > self.last:
                continue
            factor = state.factor_of[index][sub_axis]
            product = self.products.get(index)
            size = sum(num_bytes(self.work.graph.values[v]) for v, _ in node.outs)
            if product is not None and factor in product.free:
                made += size
                columns.add((index, factor))
            elif node.rule is not None and factor in node.rule.reductions:
                is_row = product is not None and factor in product.summed
                closed, summed = closed + size * is_row, summed + size * (not is_row)
            gathered += sum(
                num_bytes(self.work.graph.values[value])
                for value, reader in gathered_values(self.work, node, sub_axis)
                if reader.index <= self.last
            )
        return _TrialBytes(made, closed, summed, gathered), columns
