"""Megatron: pairs of matmuls, the first sharded by columns, the second by rows.

In a network without such pairs, they are pairs of convolutions, the first sharded by
output features, the second by input features.

Shoeybi et al., "Megatron-LM: Training Multi-Billion Parameter Language Models Using
Model Parallelism", 2019. Activations between the two are sharded and need no
communication; the second product gives a partial sum.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import islice

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.cut_work import note_uncut_work, reads_otherwise
from meshwright.partitioner.structure.products import Product, find_products
from meshwright.partitioner.structure.workspace import Refusal, Workspace
from meshwright.partitioner.tactics.role_names import Patterns, RoleNames, role_names
from meshwright.partitioner.tactics.tactic import AxisTactic
from meshwright.program.ir import num_bytes
from meshwright.program.ops import Trait, has_trait


def megatron(axis: str, params: Patterns = None, inputs: Patterns = None) -> AxisTactic:
    """Shard pairs of matmuls by columns and rows along an axis: `megatron("model")`.

    Pairs of convolutions are sharded likewise if there are no pairs of matmuls.

    before: x[B, D] @ up[D, F], gelu, @ down[F, D]
    after: up by dim 1 and down by dim 0, one all-reduce of [B, D]

    Weights are tried in program order, dim by dim. The sharding is propagated, and
    undone unless it shards some later weight by rows, needs no gather in between, and
    leads to partial sums no larger than the results that it divides. This also finds
    attention heads, with fused weights or not. When the tactic is applied, it raises
    `TacticError` if there is no such pair.
    params, inputs: patterns of weights and of data, where `docs/tactics.md` would not find
        them.
    """
    names = role_names("megatron", params, inputs)
    cut_fn = partial(_cut_pairs, names)
    return AxisTactic(f"megatron({axis!r}{names.options})", axis, cut_fn)


_MATMULS = ("dot_general", "ragged_dot_general")
_CONVOLUTIONS = ("conv_general_dilated",)


def cut_pairs(
    work: Workspace, axis: str, tactic: str, most_moved: float = 1.0
) -> list[Product]:
    """All matmuls with weights, after all Megatron pairs among them were sharded.

    If there are no pairs of matmuls, the same of convolutions.

    Each pair is propagated before the next is tried. most_moved: bytes of partial sums,
    relative to the results that a pair divides, up to which it is sharded. Raises
    `TacticError` if there is no pair.
    """
    found = find_products(work)
    for kinds in (_MATMULS, _CONVOLUTIONS):
        products = [p for p in found if p.node.op and p.node.op.kind in kinds]
        by_index = {p.node.index: p for p in products}
        search = _Search(work, axis, tactic, most_moved, by_index)
        pairs = [product for product in products if search.attempt(product)]
        if pairs:
            break
    else:
        products = [p for p in found if p.node.op and p.node.op.kind in _MATMULS]
    torn = [r for p in products for r in _sliced_across_cuts(work, p, axis)]
    if not pairs:
        ops = ", ".join(dict.fromkeys(str(p.node.source) for p in products[:4]))
        raise TacticError(
            f"{tactic} finds no pair of matmuls with weights, the second of which "
            "sums what the first makes, with nothing gathered between; there are "
            f"{len(products)} matmuls with weights"
            + (f" ({ops})" if ops else "")
            + "; params= names weights that were not found"
            + (f"; {torn[0]}" if torn else "")
        )
    work.refusals += torn
    return products


def _cut_pairs(names: RoleNames, work: Workspace, axis: str, tactic: str) -> None:
    """Shard all pairs of products, and warn if much of the FLOPs stays undivided."""
    names.find_roles(work)
    cut_pairs(work, axis, tactic)
    parts = work.mesh.size(axis)
    advice = "name cuts by mw.cut"
    if parts > 2:
        advice = (
            f"an axis of fewer parts than the {parts} of {axis!r} may divide more, such as "
            f"the number of attention heads, or {advice}"
        )
    note_uncut_work(work, axis, tactic, advice)


def _sliced_across_cuts(
    work: Workspace, product: Product, axis: str
) -> Iterator[Refusal]:
    """A refusal for a weight left unsharded, as slices of its product cross devices."""
    if work.is_cut(product.node, axis):
        return
    value, dims = product.result
    columns = [d for d, factors in enumerate(dims) if {*factors} & {*product.free}]
    for reader in (work.graph.nodes[c] for c in work.graph.consumers[value]):
        if reader.op is None or not has_trait(reader.op.kind, Trait.SLICES):
            continue
        whole, part = work.value(product.node).shape, reader.op.results[0].shape
        for d in columns:
            leaf = product.leaf(work, dims[d][0])
            if leaf is not None and part[d] < whole[d]:
                yield Refusal(
                    leaf[0],
                    axis,
                    f"{reader.label} takes {part[d]} of its {whole[d]} columns, across "
                    "what each device would have; a weight for each part can be cut",
                )
                return


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
        new = list(islice(reversed(state.causes), len(state.causes) - before))
        made = closed = summed = gathered = 0
        columns: set[tuple[int, int]] = set()
        for index, sub_axis in new:
            node = self.work.graph.nodes[index]
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
            gathered += self._gathered(node, sub_axis)
        return _TrialBytes(made, closed, summed, gathered), columns

    def _gathered(self, node: Node, sub_axis: str) -> int:
        """Bytes of a node's sharded values that a reader needs unsharded."""
        graph = self.work.graph
        readers = [
            (v, graph.nodes[c]) for v, _ in node.outs for c in graph.consumers[v]
        ]
        readers += [(v, node) for v, _ in node.ins]
        return sum(
            num_bytes(graph.values[value])
            for value, reader in readers
            if reader.index <= self.last
            and reads_otherwise(self.work, reader, value, sub_axis)
        )
