"""The parameters of a decoder that layouts for inference shard, and those they leave."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.partitioner.propagate import Node, why_not
from meshwright.partitioner.propagate.state import Cause
from meshwright.partitioner.structure.input_roles import InputRoles
from meshwright.partitioner.structure.products import Product, Seed
from meshwright.partitioner.structure.workspace import Workspace


@dataclass(frozen=True, slots=True)
class Decoder:
    """The dims of a decoder's weights and activations that a layout shards.

    wide: d_model of the weights. inner: d_ff and heads of the weights.
    hidden: d_ff and heads of activations that the second weight of a pair multiplies.
    large: products outside of pairs whose weight is larger than what they read and
        write besides, such as the scores of each prompt's last token.
    vectors: paths and nodes of parameters that no product reads, such as norms.
    """

    wide: list[Seed]
    inner: list[Seed]
    hidden: list[Seed]
    large: list[Product]
    vectors: list[tuple[str, Node]]


def other_parameters(
    work: Workspace, roles: InputRoles, products: Sequence[Product]
) -> list[tuple[str, Node]]:
    """Paths and nodes of the parameters that no product reads."""
    read = {
        leaf[0]
        for product in products
        for dims in product.weight[1]
        for factor in dims
        if (leaf := product.leaf(work, factor)) is not None
    }
    return [leaf for leaf in work.leaves(roles.params) if leaf[0] not in read]


def is_large(work: Workspace, product: Product) -> bool:
    """Whether a product's weight has more elements than its other values together."""
    ports = (product.weight, product.activation, product.result)
    weight, *others = (math.prod(work.graph.values[v].shape) for v, _ in ports)
    return weight > sum(others)


def keep_in_place(
    work: Workspace, product: Product, axes: Sequence[str], tactic: str
) -> None:
    """Shard a product as its weight is stored, and nothing around it.

    It sums over the first axis. The rest shard its result, which costs a slice of the
    weight. So its few tokens move in place of the weight.
    """
    state = work.state
    for axis in axes:
        factors = product.summed if axis == axes[0] else product.free
        for sub_axis in work.sub_axes[axis]:
            for factor in factors[:1]:
                if why_not(state, product.node, sub_axis, factor) is None:
                    state.assign(
                        product.node, sub_axis, factor, Cause("tactic", tactic)
                    )
