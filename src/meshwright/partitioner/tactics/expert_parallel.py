"""Expert parallelism: each device has some of the experts of every mixture of experts.

Lepikhin et al., "GShard", ICLR 2021. The weights of the experts are a batch of
matrices, multiplied with a batch of activations; tokens travel to their experts and
back.
"""

from functools import partial

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Node
from meshwright.partitioner.structure.products import Product, find_products
from meshwright.partitioner.structure.views import dim_of, dims_of, major
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.partitioner.tactics.role_names import Patterns, RoleNames, role_names
from meshwright.partitioner.tactics.tactic import AxisTactic


def expert_parallel(
    axis: str, params: Patterns = None, inputs: Patterns = None
) -> AxisTactic:
    """Shard the experts of every mixture along a mesh axis: `expert_parallel("model")`.

    before: tokens[E, C, D] x up[E, D, F]        after: both sharded on E

    If an earlier tactic has sharded the tokens along the same axis, all ops with a dim
    of experts are sharded on that dim instead, with an all-to-all of the tokens before
    and after. When the tactic is applied, it raises `TacticError` if there are no
    experts.
    params, inputs: patterns of weights and of data, where `docs/tactics.md` would not find
        them.
    """
    names = role_names("expert_parallel", params, inputs)
    cut_fn = partial(_cut_experts, names)
    return AxisTactic(f"expert_parallel({axis!r}{names.options})", axis, cut_fn)


def _cut_experts(names: RoleNames, work: Workspace, axis: str, tactic: str) -> None:
    """Shard all expert weights, and all ops with a dim of experts, on that dim."""
    names.find_roles(work)
    products = find_products(work)
    size = work.mesh.size(axis)
    seeds: dict[int, tuple[str, Node, int]] = {}
    region: dict[int, int] = {}
    uneven: dict[str, int] = {}
    for product in products:
        for factor in (*product.batch, *product.groups):
            leaf = product.leaf(work, factor)
            if leaf is None:
                continue
            extent = work.local_extent(*leaf[1:])
            if extent % size:
                uneven[leaf[0]] = extent
                continue
            seeds[leaf[1].index] = leaf
            if factor in product.batch:
                region |= _expert_region(work, product, factor)
            break
    if not seeds:
        shown = ", ".join(f"{path} has {n}" for path, n in [*uneven.items()][:4])
        why = (
            f"{size} divides none of their numbers: {shown}"
            if uneven
            else f"none of {len(products)} products with weights has a batch dim, "
            "or a group dim"
        )
        raise TacticError(f"{tactic} finds no experts to cut: {why}")
    for sub_axis in work.sub_axes[axis]:
        _cut_by_expert(work, region, sub_axis, tactic)
    work.cut(seeds.values(), axis, tactic)


def _cut_by_expert(
    work: Workspace, region: dict[int, int], sub_axis: str, tactic: str
) -> None:
    """Shard the nodes of `region` by expert, if the axis shards some on another dim.

    Otherwise nothing is done, since propagation then shards them.
    """
    cuts = work.state.factor_of
    other = [
        i for i, factor in region.items() if cuts[i].get(sub_axis, factor) != factor
    ]
    for index in other:
        work.state.retract(work.graph.nodes[index], sub_axis)
    if other:
        nodes = [(work.graph.nodes[i], factor) for i, factor in region.items()]
        work.propagator.cut_all(nodes, sub_axis, tactic)


def _expert_region(work: Workspace, product: Product, factor: int) -> dict[int, int]:
    """The nodes that compute expert by expert around a product of experts.

    The result has, by index of a node, the node's factor that counts experts. All
    operands and results of such a node have a dim of this factor. The ops that dispatch
    tokens to experts, or combine their results, are not in the region, since the tokens
    on their other side have no dim of experts.
    factor: the factor of the product that counts experts.
    """
    graph = work.graph
    region = {product.node.index: factor}
    todo = [product.node]
    while todo:
        node = todo.pop()
        for value, dims in (*node.ins, *node.outs):
            dim = dim_of(dims, region[node.index])
            if dim is None:
                continue
            for index in (graph.producer[value], *graph.consumers[value]):
                neighbour = graph.nodes[index]
                of_neighbour = _expert_factor(work, neighbour, value, dim)
                if index not in region and of_neighbour is not None:
                    region[index] = of_neighbour
                    todo.append(neighbour)
    return region


def _expert_factor(work: Workspace, node: Node, value: int, dim: int) -> int | None:
    """The factor of a dim of `value` in a node, if all arrays of the node have it."""
    factor = major(dims_of((*node.ins, *node.outs), value)[dim])
    arrays = [dims for v, dims in node.ins if work.graph.values[v].shape]
    arrays += [dims for _, dims in node.outs]
    is_everywhere = all(
        factor is not None and dim_of(dims, factor) is not None for dims in arrays
    )
    return factor if is_everywhere else None
