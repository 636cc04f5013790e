"""Classes of dims that are one dim of a model, and those that flow like a batch.

All dims that a factor of an op ties together are of one class: the batch of tokens, of
hidden values and of their gradients, or the rows of one weight and the columns of the
weight before it. The class of a batch runs through nearly all products without being
summed in them, and through no trained weight.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from meshwright.partitioner.propagate import Graph, Node
from meshwright.partitioner.structure.views import major
from meshwright.program.analysis.updates import gradient_values
from meshwright.program.ir import Value
from meshwright.program.ops import Trait, has_trait

LEAST_SHARE = {True: 0.25, False: 0.5}
"""Share of the forward products with a batch, at least, by whether weights are trained.

Trained weights exclude the dims of features, so that less proof is needed. Two towers
with a batch each, as for images and texts, have half of the products each.
"""
NEARLY_EQUAL = 0.05
"""Classes whose scores differ by less may all be the batch, as batch and sequence are."""


@dataclass(frozen=True, slots=True)
class Reads:
    """For each value, by number, the inputs that it is made from, as bits.

    first: all inputs, as if no state had been updated yet. direct: those from which ops
        other than products lead to the value; products of `merged` count as other ops.
    merged: products that are added to a weight, by index, with the bits of their inputs.
    """

    first: Sequence[int]
    direct: Sequence[int]
    merged: Mapping[int, int]


class DimClasses:
    """A number for each dim of each value, equal for dims that ops tie together."""

    def __init__(self, graph: Graph) -> None:
        self._first: list[int] = []
        count = 0
        for value in graph.values:
            self._first.append(count)
            count += len(value.shape)
        self._parent = list(range(count))
        for node in graph.nodes:
            self._tie(node)

    def of(self, value: int) -> list[int]:
        """The classes of a value's dims."""
        stop = self._first[value + 1] if value + 1 < len(self._first) else None
        stop = len(self._parent) if stop is None else stop
        return [self._root(i) for i in range(self._first[value], stop)]

    def of_node(self, node: Node) -> dict[int, int]:
        """The classes of a node's factors."""
        return {
            factor: self._root(self._first[value] + dim)
            for value, dims in (*node.ins, *node.outs)
            for dim, factors in enumerate(dims)
            if (factor := major(factors)) is not None
        }

    def _root(self, item: int) -> int:
        parent = self._parent
        while parent[item] != item:
            parent[item] = item = parent[parent[item]]
        return item

    def _tie(self, node: Node) -> None:
        first: dict[int, int] = {}
        for value, dims in (*node.ins, *node.outs):
            start = self._first[value]
            for dim, factors in enumerate(dims):
                if factors:
                    root = self._root(start + dim)
                    self._parent[root] = self._root(first.setdefault(factors[0], root))


@dataclass(frozen=True, slots=True)
class BatchFlow:
    """The inputs with a dim that flows like a batch, and those that meet it without one.

    batched, unbatched: positions of inputs. score, share: of the best class, as in
        `_Search`; 0 if none is a batch.
    """

    batched: frozenset[int]
    unbatched: frozenset[int]
    score: float
    share: float


def find_batch_flow(
    graph: Graph,
    inputs: Collection[int],
    trained: Collection[int],
    reads: Reads,
    arguments: Sequence[str],
) -> BatchFlow:
    """The `BatchFlow` of some inputs.

    inputs: positions of the inputs whose roles are to be found. trained: positions of
        parameters that gradients update. arguments: the argument of each input.
    """
    search = _Search(graph, inputs, trained, reads, arguments)
    batched: set[int] = set()
    unbatched: set[int] = set()
    score = share = 0.0
    for found in search.batches():
        owners = search.owners(found.classes)
        spread = search.broadcast_along(found.classes)
        batched.update(owners - spread)
        unbatched |= spread
        for node in search.products_of(found.classes):
            read = 0
            for value, _ in node.ins[:2]:
                read |= reads.direct[value]
            unbatched.update(i for i in inputs if read >> i & 1 and i not in owners)
        score, share = max((score, share), (found.score, found.share))
    return BatchFlow(frozenset(batched), frozenset(unbatched - batched), score, share)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Classes of dims that flow like one batch, with the best score and share of them."""

    classes: frozenset[int]
    score: float
    share: float


class _Search:
    """Scores of classes of dims, by how they run through a program's forward products.

    dims_of: for each input's position the classes of its dims.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Collection[int],
        trained: Collection[int],
        reads: Reads,
        arguments: Sequence[str],
    ) -> None:
        self.graph, self.inputs, self.reads = graph, inputs, reads.direct
        self.arguments = arguments
        self.classes = DimClasses(graph)
        self.dims_of: Mapping[int, Set[int]] = {
            i: frozenset(self.classes.of(graph.input_nodes[i].outs[0][0]))
            for i in (*inputs, *trained)
        }
        self.is_trained = bool(trained)
        self.of_weights = {c for i in trained for c in self.dims_of[i]}
        late = {graph.number[v] for v in gradient_values(graph.program)}
        nodes = [n for n in graph.nodes if n.rule is not None and n.outs]
        nodes = [n for n in nodes if n.outs[0][0] not in late]
        self.spreads = [
            (n, frozenset(self.classes.of(n.outs[0][0])))
            for n in nodes
            if n.label == "broadcast_in_dim" or has_trait(n.label, Trait.ELEMENTWISE)
        ]
        products = [
            n for n in nodes if n.is_contraction and n.index not in reads.merged
        ]
        products = products or [n for n in nodes if _has_two_arrays(graph, n)]
        self.is_flat = all(
            reads.first[v] == reads.direct[v] for n in products for v, _ in n.ins[:2]
        )
        self.runs = {n: self.classes.of_node(n) for n in products}
        self.outputs = [
            set(self.classes.of(graph.number[v]))
            for o, v in enumerate(graph.program.outputs)
            if o not in graph.ties and isinstance(v, Value) and v.shape
        ]

    def batches(self) -> Iterator[_Batch]:
        """Classes that flow like a batch; each batch has products of its own."""
        left = dict(self.runs)
        candidates = {c for i in self.inputs for c in self.dims_of[i]} - self.of_weights
        while left and candidates:
            scores = self._scores(left, candidates)
            best = max(scores, key=lambda c: scores[c][0])
            score, share = scores[best]
            if share < LEAST_SHARE[self.is_trained]:
                return
            near = frozenset(c for c in scores if scores[c][0] >= score - NEARLY_EQUAL)
            classes = self._one_batch(near)
            if classes:
                yield _Batch(classes, score, share)
            candidates -= near
            left = {n: of for n, of in left.items() if near.isdisjoint(of.values())}

    def _one_batch(self, classes: frozenset[int]) -> frozenset[int]:
        """Those of some equally good classes that are batches; empty if nobody can tell.

        Without trained weights, classes of different inputs may be batch and features, as
        in `x @ w`. Features are those of a bias, which is repeated along the batch. If no
        product reads the result of another one, only a bias tells them apart.
        """
        if self.is_trained:
            return classes
        if self._may_be_shared_weight(self.owners(classes)):
            return frozenset()
        if self._are_nested(classes) and not self.is_flat:
            return classes
        spread = {c: self.broadcast_along({c}) for c in classes}
        features = {
            c
            for c in classes
            if any(self.owners({c}) & spread[other] for other in classes - {c})
        }
        left = classes - features
        is_clear = bool(left) and self._are_nested(left)
        return left if is_clear and (features or not self.is_flat) else frozenset()

    def _may_be_shared_weight(self, owners: set[int]) -> bool:
        """Whether a single input may be a weight that several inputs are multiplied with.

        A weight of several inputs looks like one input of several weights. It is first of
        the arguments, or the others are of several arguments.
        """
        if len(owners) != 1:
            return False
        (owner,) = owners
        partners: set[int] = set()
        for node in self.runs:
            bits = [self.reads[value] for value, _ in node.ins[:2]]
            if 1 << owner in bits and len(bits) == 2:
                others = (bits[0] | bits[1]) & ~(1 << owner)
                partners.update(i for i in self.inputs if others >> i & 1)
        groups = {self.arguments[i] for i in partners}
        is_first = self.arguments[owner] == self.arguments[0] not in groups
        return len(partners) > 1 and (len(groups) > 1 or is_first)

    def _are_nested(self, classes: frozenset[int]) -> bool:
        """Whether the inputs of one class have the dims of all other classes, too."""
        owners = [self.owners({c}) for c in classes]
        most = max(owners, key=len)
        return all(each <= most for each in owners)

    def broadcast_along(self, classes: Set[int]) -> set[int]:
        """The inputs that are broadcast along dims of some classes, as biases are."""
        found = 0
        for node, made in self.spreads:
            for value, _ in node.ins:
                if not classes.isdisjoint(made.difference(self.classes.of(value))):
                    found |= self.reads[value]
        return {i for i in self.inputs if found >> i & 1}

    def products_of(self, classes: Set[int]) -> list[Node]:
        """The forward products through which some classes run."""
        return [
            node
            for node, of in self.runs.items()
            if not classes.isdisjoint(of.values())
        ]

    def owners(self, classes: Set[int]) -> set[int]:
        """The inputs with dims of some classes."""
        return {i for i in self.inputs if not classes.isdisjoint(self.dims_of[i])}

    def _scores(
        self, products: Mapping[Node, Mapping[int, int]], candidates: Set[int]
    ) -> dict[int, tuple[float, float]]:
        """The score of each class, and the share of the products that it runs through.

        Products count, and outputs with the class; products that sum over it count
        against it.
        """
        runs: Counter[int] = Counter()
        summed: Counter[int] = Counter()
        for node, of in products.items():
            runs.update({*of.values()} & candidates)
            reductions = node.rule.reductions if node.rule is not None else ()
            summed.update({c for f, c in of.items() if f in reductions} & candidates)
        kept = Counter(c for dims in self.outputs for c in dims & candidates)
        count, outputs = len(products), max(len(self.outputs), 1)
        return {
            c: ((2 * runs[c] - summed[c]) / count + kept[c] / outputs, runs[c] / count)
            for c in candidates
        }


def _has_two_arrays(graph: Graph, node: Node) -> bool:
    return sum(bool(graph.values[value].shape) for value, _ in node.ins) > 1
