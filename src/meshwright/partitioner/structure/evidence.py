"""Evidence that an input is a weight or data, weighed by points.

Positive points speak for a weight, negative ones for data. `find_evidence` collects them
for each input; `verdict.py` adds them up over the inputs that share an argument.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from meshwright.partitioner.propagate import Graph, Node
from meshwright.partitioner.structure.batch_flow import BatchFlow, Reads
from meshwright.partitioner.structure.dependence import find_dependence, members
from meshwright.program.analysis.updates import gradient_values
from meshwright.program.ir import is_small_integer
from meshwright.program.rules.factors import is_inexact


class Evidence(Enum):
    """A property of an input that makes it a weight (points above 0) or data (below 0)."""

    NAMED_WEIGHT = 100, "named by params="
    LATER = 4, "multiplied with what other products made"
    KERNEL = 4, "the kernel of a convolution, or the experts of a ragged product"
    MERGED = 3, "an adapter of low rank, or the array to which one is added"
    SCALED = 3, "integers of 8 bits, or their scales"
    GRADIENT = 6, "a result of the backward pass has its shape, and no input before it"
    LEADS = 2, "in the first argument, multiplied with an input of another argument"
    HANDED_BACK = 2, "handed back unchanged, or with something added"
    SECOND = 1, "the second operand of a product of two inputs"
    UNBATCHED = 3, "meets the batch in a product, or is repeated along it"
    INDEXED = 1, "read at positions that another input gives"

    NAMED_DATA = -100, "named by inputs="
    MEETS_TRAINED = -8, "multiplied with trained weights alone"
    BATCHED = -6, "a dim flows through the products as a batch does"
    CONVOLVED = -4, "what a kernel convolves"
    WHOLE_NUMBERS = -3, "integers of more than 8 bits, or booleans"
    CARRIED = (
        -4,
        "its next value depends on other inputs, and the step has no gradients",
    )
    FIRST = -1, "the first operand of a product of two inputs"
    ONE_ARRAY = -1, "an argument that is one array, beside arguments that are trees"

    def __init__(self, points: int, words: str) -> None:
        self.points = points
        self.words = words


@dataclass(frozen=True, slots=True)
class RoleCandidates:
    """Inputs whose roles are to be found, and those whose roles are known, by position.

    unknown: inputs with dims that may be weights or data. trained: parameters that a
        gradient updates. state: those of `unknown` whose next value is handed back;
        `kept` of them unchanged, or with something added.
    named_weights, named_data: inputs whose role the user gives.
    """

    unknown: frozenset[int]
    trained: frozenset[int]
    state: frozenset[int]
    kept: frozenset[int]
    named_weights: frozenset[int]
    named_data: frozenset[int]


@dataclass(frozen=True, slots=True)
class Findings:
    """The evidence of each unknown input, by position.

    pairs: inputs that are the two operands of one product, each with itself or few others.
    """

    of: Mapping[int, frozenset[Evidence]]
    pairs: frozenset[tuple[int, int]]

    def points(self, position: int) -> int:
        """The sum of an input's points."""
        return sum(evidence.points for evidence in self.of[position])


def find_evidence(
    graph: Graph,
    paths: Sequence[str],
    inputs: RoleCandidates,
    flow: BatchFlow,
    reads: Reads,
) -> Findings:
    """The evidence of each unknown input."""
    found: dict[int, set[Evidence]] = {i: set() for i in inputs.unknown}
    products = _Products(graph, paths, inputs, flow, reads)
    for position, evidence in (
        *((i, Evidence.NAMED_WEIGHT) for i in inputs.named_weights & inputs.unknown),
        *((i, Evidence.NAMED_DATA) for i in inputs.named_data & inputs.unknown),
        *_of_state(graph, inputs),
        *_of_gradients(graph, inputs),
        *_of_types(graph, paths, inputs),
        *products.evidence(),
        *_of_merged(inputs, reads),
        *_of_tables(graph, inputs, reads),
        *((i, Evidence.BATCHED) for i in flow.batched),
        *((i, Evidence.UNBATCHED) for i in flow.unbatched),
    ):
        found[position].add(evidence)
    of = {i: frozenset(evidence) for i, evidence in found.items()}
    return Findings(of, frozenset(products.pairs))


def _of_types(
    graph: Graph, paths: Sequence[str], inputs: RoleCandidates
) -> Iterator[tuple[int, Evidence]]:
    """Evidence of dtypes, and of how inputs are passed in."""
    has_trees = any("." in path for path in paths)
    for i in inputs.unknown:
        if is_whole_number(graph.program.inputs[i].dtype):
            yield i, Evidence.WHOLE_NUMBERS
        if "." not in paths[i] and has_trees and i not in inputs.state:
            yield i, Evidence.ONE_ARRAY


def _of_state(graph: Graph, inputs: RoleCandidates) -> Iterator[tuple[int, Evidence]]:
    """Evidence of the next values of state that no gradient updates."""
    yield from ((i, Evidence.HANDED_BACK) for i in inputs.kept)
    program = graph.program
    if gradient_values(program):
        return
    depends = find_dependence(graph)
    for output, position in graph.ties.items():
        value = program.outputs[output]
        bits = depends[graph.number[value]] if value in graph.number else 0
        if position in inputs.state and bits & ~(1 << position):
            yield position, Evidence.CARRIED


def _of_gradients(
    graph: Graph, inputs: RoleCandidates
) -> Iterator[tuple[int, Evidence]]:
    """Evidence of gradients that the program returns, as `jax.grad` does.

    Each speaks for the first input of its shape and dtype for which none spoke before.
    """
    program = graph.program
    backward = {r for op in program.ops if op.is_backward for r in op.results}
    left = sorted(inputs.unknown)
    for output, value in enumerate(program.outputs):
        if value not in backward or output in graph.ties:
            continue
        for i in left:
            given = program.inputs[i]
            if (given.shape, given.dtype) == (value.shape, value.dtype):
                left.remove(i)
                yield i, Evidence.GRADIENT
                break


class _Products:
    """Evidence of products; of most kinds only the first that reads an input counts.

    pairs: as in `Findings`.
    """

    def __init__(
        self,
        graph: Graph,
        paths: Sequence[str],
        inputs: RoleCandidates,
        flow: BatchFlow,
        reads: Reads,
    ) -> None:
        self.graph, self.paths, self.reads = graph, paths, reads
        self.pairs: set[tuple[int, int]] = set()
        self.unknown, self.trained = _bits(inputs.unknown), _bits(inputs.trained)
        dtypes = [value.dtype for value in graph.program.inputs]
        self.whole = _bits(i for i in inputs.unknown if is_whole_number(dtypes[i]))
        self.likely = self.whole | _bits(flow.batched)
        arguments = [path.partition(".")[0] for path in paths]
        has_trees = any("." in path for path in paths)
        leading = (i for i in inputs.unknown if arguments[i] == arguments[0])
        self.leading = _bits(leading) if has_trees else 0
        self.small = _bits(i for i in inputs.unknown if is_small_integer(dtypes[i]))

    def evidence(self) -> Iterator[tuple[int, Evidence]]:
        """The evidence of all products, in program order.

        If an operand is made from several inputs, such as tokens, a table and the scale of
        a norm, those with a batch or of whole numbers are its data.
        """
        seen = 0
        for node in self.graph.nodes:
            if not node.is_contraction or len(node.ins) < 2:
                continue
            if node.index in self.reads.merged:
                continue
            values = [value for value, _ in node.ins[:2]]
            reads = [self.reads.direct[value] & self.unknown for value in values]
            known = self.unknown | self.trained
            full = [self.reads.first[value] & known for value in values]
            is_alone = [
                bool(f) and f == d and not f & self.whole
                for f, d in zip(full, reads, strict=True)
            ]
            for side in (0, 1):
                mine, other = full[side], full[1 - side]
                new = reads[side] & ~seen
                if other and not other & ~self.trained and not mine & self.trained:
                    data = reads[side] & self.likely or reads[side]
                    yield from _each(data, Evidence.MEETS_TRAINED)
                elif is_alone[side] and all(is_alone):
                    yield from self._of_pair(node, side, new, reads)
                elif is_alone[side] and other & ~mine:
                    yield from _each(new, Evidence.LATER)
            seen |= reads[0] | reads[1]

    def _of_pair(
        self, node: Node, side: int, new: int, reads: Sequence[int]
    ) -> Iterator[tuple[int, Evidence]]:
        """Evidence of a product whose operands are inputs, perhaps scaled or shifted."""
        assert node.op is not None
        own, others = members(reads[side]), members(reads[1 - side])
        self.pairs |= {(i, other) for i in members(new) for other in others}
        if node.op.kind != "dot_general":
            yield from _each(new, (Evidence.CONVOLVED, Evidence.KERNEL)[side])
            return
        yield from _each(new, (Evidence.FIRST, Evidence.SECOND)[side])
        if self.leading and not reads[1 - side] & self.leading:
            yield from _each(new & self.leading, Evidence.LEADS)
        is_scaled = len(own) > 1 and reads[side] & self.small
        if is_scaled and not (len(others) > 1 and reads[1 - side] & self.small):
            yield from _each(new, Evidence.SCALED)


def _of_merged(inputs: RoleCandidates, reads: Reads) -> Iterator[tuple[int, Evidence]]:
    """Evidence of products of two inputs that are added to a third one."""
    for bits in reads.merged.values():
        yield from _each(bits & _bits(inputs.unknown), Evidence.MERGED)


def _of_tables(
    graph: Graph, inputs: RoleCandidates, reads: Reads
) -> Iterator[tuple[int, Evidence]]:
    """Evidence of inputs that are read at positions which another input gives."""
    unknown = _bits(inputs.unknown)
    for node in graph.nodes:
        if node.op is None or node.op.kind != "gather" or len(node.ins) < 2:
            continue
        table, index = (reads.direct[value] for value, _ in node.ins[:2])
        if index & unknown & ~table:
            yield from _each(table & unknown & ~index, Evidence.INDEXED)


def _each(bits: int, evidence: Evidence) -> Iterator[tuple[int, Evidence]]:
    return ((i, evidence) for i in members(bits))


def _bits(positions: Collection[int] | Iterator[int]) -> int:
    return sum(1 << i for i in positions)


def is_whole_number(dtype: str) -> bool:
    """Whether a dtype is an integer of more than 8 bits, or the booleans."""
    return not is_inexact(dtype) and not is_small_integer(dtype)
