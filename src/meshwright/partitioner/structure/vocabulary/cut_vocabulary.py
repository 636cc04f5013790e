"""The vocabulary of a model: heads that score its words, and tables of its words.

A head is a product with weights on which no other one depends, but through whole numbers
such as a chosen word. Cut along the vocabulary, each device has the scores of some words,
and a loss over them sums over devices the largest score, the exponentials and the score of
the label, which are numbers per token. So does Megatron-LM (Shoeybi et al., 2019).
"""

from collections.abc import Iterator, Sequence
from math import prod

from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.cut_work import gathered_values, new_cuts
from meshwright.partitioner.structure.input_roles import find_roles
from meshwright.partitioner.structure.products import Product, Seed
from meshwright.partitioner.structure.views import leaf_dim
from meshwright.partitioner.structure.workspace import Refusal, Workspace
from meshwright.program.analysis.updates import gradient_values
from meshwright.program.ir import num_bytes
from meshwright.program.ops import Trait, has_trait
from meshwright.program.rules.factors import is_inexact

MEMORY_OVER_LINKS = 8
"""Bytes that a chip reads from memory in the time in which a link moves one.

7 for the links of an H100, 8 of a TPU v5e, 12 of a v4. A serving step that needs all
scores, as a sort of them does, gathers them in less time than it reads the whole weight
if the weight has more bytes than this many times the scores.
"""


def cut_vocabulary(
    work: Workspace, first: Sequence[Product], axis: str, tactic: str
) -> None:
    """Shard the heads of a program, and tables of as many rows, along the vocabulary.

    before: logits[T, V] = x[T, D] @ head[D, V]
    after: head by dim 1 and logits by dim 1; sums over devices of [T] in the loss, and one
        of [T, D] for the gradient of x

    first: the first product of each parameter. A head is left whole if it moves more
        bytes than it divides, or if something needs all scores of a token. If the axis
        does not divide the vocabulary, that is a warning.
    """
    extents: set[int] = set()
    late = _late_nodes(work)
    products = _forward_products(work, late)
    for product in _heads(work, first, products, late):
        for factor in sorted(product.free, key=lambda f: -product.node.sizes[f]):
            if _cut_head(work, product, factor, axis, tactic, late):
                extents.add(product.node.sizes[factor])
                break
    for seed in _tables(work, products, extents) if extents else ():
        mark, before = work.mark(), len(work.state.causes)
        if not work.is_cut(seed[1], axis):
            work.cut([seed], axis, tactic)
            if not work.is_cut(seed[1], axis) or _gathered(work, before):
                work.rollback(mark)


def _late_nodes(work: Workspace) -> frozenset[int]:
    """The nodes, by index, that a backward pass consists of or that depend on gradients."""
    graph, late = work.graph, gradient_values(work.graph.program)
    made = ((node.index, graph.values[v]) for node in graph.nodes for v, _ in node.outs)
    return frozenset(index for index, value in made if value in late)


def _forward_products(work: Workspace, late: frozenset[int]) -> list[Product]:
    """All products of weights with values that depend on data, in the forward pass."""
    roles = find_roles(work)
    params = sum(1 << i for i in roles.params)
    found: list[Product] = []
    for node in work.graph.nodes:
        if not node.is_contraction or len(node.ins) < 2 or node.index in late:
            continue
        first, second = node.ins[:2]
        for weight, activation in ((second, first), (first, second)):
            bits = roles.first[weight[0]]
            if bits and not bits & ~params and roles.depends[activation[0]] & ~params:
                found.append(Product(node, weight, activation))
                break
    return found


def _heads(
    work: Workspace,
    first: Sequence[Product],
    products: Sequence[Product],
    late: frozenset[int],
) -> list[Product]:
    """The products from whose results floats lead to no first product of a parameter.

    late: nodes outside of the forward pass.
    """
    graph = work.graph
    todo = [value for product in first for value, _ in product.node.ins]
    leading = set(todo)
    while todo:
        node = graph.nodes[graph.producer[todo.pop()]]
        if node.index in late or node.input_position is not None:
            continue
        new = {v for v, _ in node.ins if is_inexact(graph.values[v].dtype)} - leading
        leading |= new
        todo += new
    return [p for p in products if p.result[0] not in leading]


def _tables(
    work: Workspace, products: Sequence[Product], extents: set[int]
) -> Iterator[Seed]:
    """Dims of tables of words, whose rows are read at positions in data.

    The rows are gathered, or multiplied with one-hot vectors. A table has words if it has
    as many rows as a head has words, or more rows than features.

    extents: numbers of words of the heads that are sharded.
    """
    roles = find_roles(work)
    params = sum(1 << i for i in roles.params)
    for node in work.graph.nodes:
        if node.op is None or not has_trait(node.op.kind, Trait.READS_AT_INDEX):
            continue
        assert node.rule is not None
        (table, dims), *indices = node.ins
        if not any(roles.depends[value] & ~params for value, _ in indices):
            continue
        for dim, factors in enumerate(dims):
            is_read = {*factors} & node.rule.special & {*node.rule.reductions}
            leaf = leaf_dim(work.graph, table, dim) if is_read else None
            position = None if leaf is None else leaf[0].input_position
            if leaf is None or position is None or position not in roles.params:
                continue
            if _has_words(work, leaf, extents):
                yield work.paths[position], *leaf
    for product in products:
        for factor in product.summed if _is_one_hot(work, product) else ():
            leaf = product.leaf(work, factor)
            if leaf is not None and _has_words(work, leaf[1:], extents):
                yield leaf


def _has_words(work: Workspace, leaf: tuple[Node, int], extents: set[int]) -> bool:
    """Whether an input is a table of words, with a row for each along a dim."""
    node, dim = leaf
    shape = work.graph.values[node.outs[0][0]].shape
    return shape[dim] in extents or shape[dim] ** 2 > prod(shape)


def _is_one_hot(work: Workspace, product: Product) -> bool:
    """Whether a product multiplies its weight with floats made of whole numbers alone."""
    graph = work.graph
    todo, seen = [product.activation[0]], {product.activation[0]}
    while todo:
        node = graph.nodes[graph.producer[todo.pop()]]
        if node.op is None:
            return False
        new = {v for v, _ in node.ins if is_inexact(graph.values[v].dtype)} - seen
        seen |= new
        todo += new
    return True


def _cut_head(
    work: Workspace,
    product: Product,
    factor: int,
    axis: str,
    tactic: str,
    late: frozenset[int],
) -> bool:
    """Shard a factor of a head along an axis, if that is worth it."""
    values = work.graph.values
    seed = product.leaf(work, factor)
    divided, moved = (
        num_bytes(values[v]) for v, _ in (product.result, product.activation)
    )
    if seed is None or work.is_cut(product.node, axis) or moved > divided:
        return False
    if _note_uneven(work, product, factor, axis, tactic):
        return False
    mark, before = work.mark(), len(work.state.causes)
    work.cut([seed], axis, tactic)
    gathered = _gathered(work, before)
    is_cheap = MEMORY_OVER_LINKS * gathered <= num_bytes(values[product.weight[0]])
    moved += _summed(work, before, late)
    if work.is_cut(product.node, axis) and is_cheap and moved <= divided:
        return True
    work.rollback(mark)
    return False


def _note_uneven(
    work: Workspace, product: Product, factor: int, axis: str, tactic: str
) -> bool:
    """Whether the axis does not divide the vocabulary, which adds a warning."""
    node, size = product.node, work.mesh.size(axis)
    extent, parts = node.sizes[factor], work.state.parts(node, factor) * size
    if not extent % parts:
        return False
    where = f"the vocabulary of {node.label} ({node.source})"
    why = f"{parts} parts do not divide extent {extent}"
    work.refusals.append(Refusal(where, axis, why))
    work.warnings.append(
        f"{tactic} leaves {where} whole along {axis!r}: {why}; pad it to "
        f"{-(-extent // parts) * parts} rows, and mask the scores of those added"
    )
    return True


def _gathered(work: Workspace, before: int) -> int:
    """Bytes that readers need whole of what was sharded since decision `before`."""
    return sum(
        num_bytes(work.graph.values[value])
        for node, sub_axis in new_cuts(work, before)
        for value, _ in gathered_values(work, node, sub_axis)
    )


def _summed(work: Workspace, before: int, late: frozenset[int]) -> int:
    """Bytes of partial sums in the forward pass since decision `before`.

    Rows read from a table are left out.
    """
    roles, total = find_roles(work), 0
    params = sum(1 << i for i in roles.params)
    for node, sub_axis in new_cuts(work, before):
        if node.rule is None or node.index in late:
            continue
        is_table = any(
            roles.first[v] and not roles.first[v] & ~params for v, _ in node.ins
        )
        factor = work.state.factor_of[node.index][sub_axis]
        if not is_table and factor in node.rule.reductions:
            total += sum(num_bytes(work.graph.values[v]) for v, _ in node.outs)
    return total
