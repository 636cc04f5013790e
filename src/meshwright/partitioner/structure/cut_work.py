"""Share of a step's FLOPs that a mesh axis divides among its devices.

Only matrix products count, unless a program has none. Optimizer steps and norms are
ignored: they are cheap, and sharding the batch does not divide the optimizer steps.
"""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice

from meshwright.partitioner.propagate import Graph, Node
from meshwright.partitioner.structure.workspace import Refusal, Workspace
from meshwright.program.analysis.executions import op_executions
from meshwright.program.ops import work_of


@lru_cache(maxsize=1)  # several tactics of one partitioning ask
def flops_of(graph: Graph) -> dict[Node, int]:
    """FLOPs in a step of each matrix product, or of each op if there is no product.

    All iterations of loops count.
    """
    flops = {
        graph.op_node[op]: times * work_of(op).flops
        for op, times in op_executions(graph.program)
        if op in graph.op_node
    }
    products = {node: n for node, n in flops.items() if node.is_contraction}
    return products or flops


def cut_share(work: Workspace, axis: str) -> float:
    """Share of the FLOPs in ops that an axis shards, from 0 to 1; 1 without FLOPs."""
    flops = flops_of(work.graph)
    total = sum(flops.values())
    cut = sum(n for node, n in flops.items() if _is_cut(work, node, axis))
    return cut / total if total else 1.0


def cut_ops(work: Workspace, axis: str) -> frozenset[int]:
    """Indices of the ops that count and that an axis shards."""
    return frozenset(n.index for n in flops_of(work.graph) if _is_cut(work, n, axis))


def _uncut_places(work: Workspace, axis: str) -> str:
    """The three ops with most FLOPs that an axis does not shard, most first."""
    uncut: Counter[str] = Counter()
    for node, flops in flops_of(work.graph).items():
        if not _is_cut(work, node, axis):
            uncut[f"{node.label} ({node.source})"] += flops
    return ", ".join(where for where, _ in uncut.most_common(3))


MOST_UNCUT = 0.25
"""Largest share of the FLOPs that a tactic may leave unsharded without a warning.

Megatron without the vocabulary leaves 2 % to 13 % of decoders unsharded, and 24 % of a
mixture of experts.
"""


def note_uncut_work(work: Workspace, axis: str, tactic: str, advice: str) -> None:
    """Add a refusal and a warning if a tactic has left much of the work unsharded.

    advice: what the user can do, as the end of the warning.
    """
    uncut = 1 - cut_share(work, axis)
    if uncut <= MOST_UNCUT:
        return
    places = f"most of it at {_uncut_places(work, axis)}"
    is_products = all(node.is_contraction for node in flops_of(work.graph))
    counted = "matrix products" if is_products else "all ops"
    share = f"{uncut:.0%} of the work (FLOPs of {counted})"
    work.refusals.append(Refusal(share, axis, f"left whole, {places}"))
    work.warnings.append(
        f"{tactic} leaves {share} whole along {axis!r}, {places}; {advice}"
    )


def first_cut_sums(work: Workspace, axis: str) -> bool:
    """Whether the first op that an axis shards contracts (sums over) the sharded dim.

    For an axis over the batch it does not: only the backward pass and the loss sum over
    the batch.
    """
    for node in flops_of(work.graph):
        if _is_cut(work, node, axis):
            cut, rule = work.state.factor_of[node.index], node.rule
            return rule is not None and any(
                cut[sub_axis] in rule.reductions for sub_axis in work.sub_axes[axis]
            )
    return False


def gathers(work: Workspace, axis: str) -> bool:
    """Whether an axis shards some value that an op needs in another sharding.

    An axis over the batch needs no such gather, since examples are independent up to
    sums.
    """
    return any(
        reads_otherwise(work, work.graph.nodes[index], value, sub_axis)
        for value, readers in enumerate(work.graph.consumers)
        for index in readers
        for sub_axis in work.sub_axes[axis]
    )


def new_cuts(work: Workspace, before: int) -> Iterator[tuple[Node, str]]:
    """(node, sub-axis) of all decisions after the first `before`, the latest first."""
    causes = work.state.causes
    new = islice(reversed(causes), len(causes) - before)
    return ((work.graph.nodes[index], sub_axis) for index, sub_axis in list(new))


def gathered_values(
    work: Workspace, node: Node, sub_axis: str
) -> Iterator[tuple[int, Node]]:
    """(value, reader) of a node's sharded values that a reader needs unsharded."""
    graph = work.graph
    readers = [(v, graph.nodes[c]) for v, _ in node.outs for c in graph.consumers[v]]
    readers += [(v, node) for v, _ in node.ins]
    return (
        (value, reader)
        for value, reader in readers
        if reads_otherwise(work, reader, value, sub_axis)
    )


def reads_otherwise(work: Workspace, reader: Node, value: int, sub_axis: str) -> bool:
    """Whether an op needs a value without the sharding that a sub-axis gives it.

    The op reads it unsharded, or sharded on another dim, so that it has to be
    resharded.
    """
    dim = work.state.dim_on(value, sub_axis)
    if dim is None or dim < 0 or reader.input_position is not None:
        return False
    reads = work.state.reads(reader, value)
    return any(sharding.dim_of(sub_axis) != dim for sharding in reads)


def _is_cut(work: Workspace, node: Node, axis: str) -> bool:
    """Whether all sub-axes of a mesh axis shard an op."""
    cut = work.state.factor_of[node.index]
    return all(sub_axis in cut for sub_axis in work.sub_axes[axis])
