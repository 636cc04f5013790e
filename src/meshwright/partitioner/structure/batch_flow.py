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

LEAST_SHARE = {True: 0.25, False: 0.5}
"""Share of the forward products that a batch must run through, by whether weights are trained.

Trained weights exclude the dims of features, so that less proof is needed. Two towers
with a batch each, as for images and texts, have half of the products each.
"""
NEARLY_EQUAL = 0.05
"""Classes whose scores differ by less may all be the batch, as batch and sequence are."""


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

    batched, unbatched: positions of inputs.
    """

    batched: frozenset[int]
    unbatched: frozenset[int]


def find_batch_flow(
    graph: Graph,
    inputs: Collection[int],
    trained: Collection[int],
    reads: Sequence[int],
) -> BatchFlow:
    """The `BatchFlow` of some inputs.

    inputs: positions of the inputs whose roles are to be found. trained: positions of
        parameters that gradients update. reads: for each value, as bits, the inputs from
        which it is made without products.
    """
    search = _Search(graph, inputs, trained, reads)
    batched: set[int] = set()
    unbatched: set[int] = set()
    for classes in search.batches():
        owners = [i for i in inputs if not classes.isdisjoint(search.dims_of[i])]
        spread = search.broadcast_along(classes)
        batched.update(i for i in owners if i not in spread)
        for node in search.products_of(classes):
            read = 0
            for value, _ in node.ins[:2]:
                read |= reads[value]
            unbatched.update(i for i in inputs if read >> i & 1 and i not in owners)
    return BatchFlow(frozenset(batched), frozenset(unbatched - batched))


class _Search:
    """Scores of classes of dims, by how they run through a program's forward products.

    dims_of: for each input's position the classes of its dims.
    """

    def __init__(
        self,
        graph: Graph,
        inputs: Collection[int],
        trained: Collection[int],
        reads: Sequence[int],
    ) -> None:
        self.graph, self.inputs, self.reads = graph, inputs, reads
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
        products = [n for n in nodes if n.is_contraction] or nodes
        self.runs = {n: self.classes.of_node(n) for n in products}
        self.outputs = [
            set(self.classes.of(graph.number[v]))
            for o, v in enumerate(graph.program.outputs)
            if o not in graph.ties and isinstance(v, Value) and v.shape
        ]

    def batches(self) -> Iterator[frozenset[int]]:
        """Sets of classes that flow like one batch each; each has products of its own."""
        left = dict(self.runs)
        candidates = {c for i in self.inputs for c in self.dims_of[i]} - self.of_weights
        while left and candidates:
            scores = self._scores(left, candidates)
            best = max(scores, key=lambda c: scores[c][0])
            if scores[best][1] < LEAST_SHARE[self.is_trained]:
                return
            near = {
                c for c in scores if scores[c][0] >= scores[best][0] - NEARLY_EQUAL
            }
            mine = self._owners({best})
            same = frozenset(c for c in near if self._owners({c}) & mine)
            # Without trained weights, two classes of different inputs may both be features.
            if self.is_trained or same == near:
                yield frozenset(near) if self.is_trained else same
            candidates -= near
            left = {n: of for n, of in left.items() if near.isdisjoint(of.values())}

    def broadcast_along(self, classes: Set[int]) -> set[int]:
        """The inputs that are broadcast along dims of some classes, as biases are."""
        found = 0
        for node in self.graph.nodes:
            if node.op is None or node.op.kind != "broadcast_in_dim" or not node.ins:
                continue
            made = self.classes.of(node.outs[0][0])
            new = set(made) - set(self.classes.of(node.ins[0][0]))
            if not classes.isdisjoint(new):
                found |= self.reads[node.ins[0][0]]
        return {i for i in self.inputs if found >> i & 1}

    def products_of(self, classes: Set[int]) -> list[Node]:
        """The forward products through which some classes run."""
        return [
            node for node, of in self.runs.items() if not classes.isdisjoint(of.values())
        ]

    def _owners(self, classes: Set[int]) -> set[int]:
        return {i for i in self.inputs if not classes.isdisjoint(self.dims_of[i])}

    def _scores(
        self, products: Mapping[Node, Mapping[int, int]], candidates: Set[int]
    ) -> dict[int, tuple[float, float]]:
        """For each class its score, and the share of the products that it runs through.

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
            c: ((runs[c] - 2 * summed[c]) / count + kept[c] / outputs, runs[c] / count)
            for c in candidates
        }
