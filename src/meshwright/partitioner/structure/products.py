"""Products of weights with activations, and the parameter dims they read."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from meshwright.partitioner.propagate import Node
from meshwright.partitioner.propagate.graph import Port
from meshwright.partitioner.structure.input_roles import InputRoles, find_roles
from meshwright.partitioner.structure.views import dim_of, leaf_dim
from meshwright.partitioner.structure.workspace import Sum, Workspace
from meshwright.program.ops import Trait, has_trait
from meshwright.program.rules.rule import Dims

type Seed = tuple[str, Node, int | Sum]
"""A dim to shard: its name for messages, its node, and a dim of the node's result.

A `Sum` in place of the dim stands for a dim over which the node sums. The name is the
path of an input or a source line.
"""


@dataclass(frozen=True, slots=True, eq=False)
class Product:
    """The first product, in program order, that has a given weight as an operand.

    weight: the operand that depends on parameters only.
    activation: the other operand.

    Factors are the dims of the product as in an einsum: `bsd,df->bsf` has b, s, d and
    f.
    """

    node: Node
    weight: Port
    activation: Port

    @property
    def free(self) -> list[int]:
        """Factors of weight and result, not of the activation: `f` in `bd,df->bf`."""
        return self._factors(self.weight[1], self._made - _all(self.activation[1]))

    @property
    def summed(self) -> list[int]:
        """Factors of weight and activation, not of the result: `d` in `bd,df->bf`."""
        return self._factors(self.weight[1], _all(self.activation[1]) - self._made)

    @property
    def batch(self) -> list[int]:
        """Factors of weight, activation and result: `e` in `ebd,edf->ebf`."""
        return self._factors(self.weight[1], _all(self.activation[1]) & self._made)

    @property
    def groups(self) -> list[int]:
        """Factors of the weight alone: the groups of a `jax.lax.ragged_dot`."""
        return self._factors(
            self.weight[1],
            _all(self.weight[1]) - _all(self.activation[1]) - self._made,
        )

    @property
    def rows(self) -> list[int]:
        """Factors of activation and result, not of the weight: `b` in `bd,df->bf`."""
        return self._factors(self.activation[1], self._made - _all(self.weight[1]))

    @property
    def result(self) -> Port:
        """The number of the product's result, and the factors of its dims."""
        return self.node.outs[0]

    @property
    def _made(self) -> set[int]:
        return _all(self.node.outs[0][1])

    def _factors(self, dims: Dims, wanted: set[int]) -> list[int]:
        return [f for factors in dims for f in factors if f in wanted]

    def leaf(self, work: Workspace, factor: int) -> tuple[str, Node, int] | None:
        """The parameter dim from which a factor of the weight comes: (path, node, dim).

        `None` if the factor comes from no dim of one parameter.
        """
        value, dims = self.weight
        dim = next(d for d, fs in enumerate(dims) if factor in fs)
        found = leaf_dim(work.graph, value, dim)
        position = None if found is None else found[0].input_position
        if found is None or position is None:
            return None
        return work.paths[position], found[0], found[1]

    def seeds(self, work: Workspace, factors: Sequence[int]) -> list[Seed]:
        """Requests to shard factors of the weight, for `Workspace.cut`.

        Each factor gives two: the dim of its parameter, and the same factor of this
        product, so that no other sharding reaches the product first.
        """
        found: list[Seed] = []
        for factor in factors:
            leaf = self.leaf(work, factor)
            if leaf is None:
                continue
            found.append(leaf)
            dim, sums = dim_of(self.result[1], factor), work.sums(self.node)
            where = str(self.node.source)
            if dim is not None:
                found.append((where, self.node, dim))
            elif factor in sums:  # not in a depthwise convolution
                found.append((where, self.node, Sum(sums.index(factor))))
        return found


def multiplies_data(node: Node, roles: InputRoles) -> bool:
    """Whether a node multiplies two values that both depend on more than parameters.

    The scores of attention, `q @ k`, are such a product.
    """
    params = sum(1 << i for i in roles.params)
    return node.is_contraction and all(
        roles.depends[value] & ~params for value, _ in node.ins[:2]
    )


def follows_attention(work: Workspace, roles: InputRoles, value: int) -> bool:
    """Whether some nearest product upstream of a value multiplies data with data.

    The value is then taken to come out of attention.
    """
    todo, seen = [value], {value}
    while todo:
        node = work.graph.nodes[work.graph.producer[todo.pop()]]
        if node.is_contraction:
            if multiplies_data(node, roles):
                return True
            continue
        new = {v for v, _ in node.ins} - seen
        seen |= new
        todo += sorted(new)
    return False


def find_products(work: Workspace) -> list[Product]:
    """The first product of each parameter with an operand that depends on data.

    Layers of an array that are sliced one by one, as in an unrolled loop, count as
    parameters of their own. The first product in program order is in the forward pass;
    gradients come later.
    """
    roles = find_roles(work)
    params = sum(1 << i for i in roles.params)
    slices = _static_slices(work, roles)
    seen = whole = 0
    seen_slices: set[_Slice] = set()
    products: list[Product] = []
    for node in work.graph.nodes:
        if not node.is_contraction or len(node.ins) < 2:
            continue
        first, second = node.ins[:2]
        for weight, activation in ((second, first), (first, second)):
            bits, part = roles.first[weight[0]], slices.get(weight[0])
            is_seen = seen & bits if part is None else whole & bits
            if not bits or bits & ~params or is_seen or part in seen_slices:
                continue
            if roles.depends[activation[0]] & ~params:
                seen |= bits
                if part is None:
                    whole |= bits
                else:
                    seen_slices.add(part)
                products.append(Product(node, weight, activation))
                break
    return products


type _Slice = tuple[int | None, int, Hashable]
"""A static slice: signature of its op, position of the result, and what is sliced."""


def _static_slices(work: Workspace, roles: InputRoles) -> dict[int, _Slice]:
    """The static slice of each value that is computed from one slice of one parameter."""
    found: dict[int, _Slice] = {}
    for node in work.graph.nodes:
        if len(node.ins) != 1:
            continue
        operand = node.ins[0][0]
        if roles.first[operand].bit_count() != 1:
            continue
        is_slice = node.op is not None and has_trait(node.op.kind, Trait.SLICES)
        for position, (value, _) in enumerate(node.outs):
            if is_slice and node.wire is None:
                sliced = found.get(operand, roles.first[operand])
                found[value] = node.signature, position, sliced
            elif operand in found:
                found[value] = found[operand]
    return found


def _all(dims: Dims) -> set[int]:
    return {f for factors in dims for f in factors}
