"""Evidence that an input is a weight or data, weighed by points.

Positive points speak for a weight, negative ones for data. `find_evidence` collects them
for each input, and `weigh` adds them up over the inputs that share an argument. What few
points decide is a `Doubt`.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from meshwright.partitioner.propagate import Graph, Node
from meshwright.partitioner.structure.batch_flow import BatchFlow, find_batch_flow
from meshwright.partitioner.structure.dependence import find_dependence, members
from meshwright.program.analysis.updates import gradient_values
from meshwright.program.ir import is_small_integer
from meshwright.program.rules.factors import is_inexact


class Evidence(Enum):
    """What speaks for a weight (points above 0) or for data (points below 0)."""

    NAMED_WEIGHT = 100, "named by params="
    LATER = 4, "multiplied with what other products made"
    KERNEL = 4, "the kernel of a convolution, or the experts of a ragged product"
    SCALED = 3, "integers of 8 bits, or their scales"
    HANDED_BACK = 2, "handed back unchanged, or with something added"
    SECOND = 1, "the second operand of a product of two inputs"
    UNBATCHED = 1, "meets the batch in a product, or is repeated along it"
    INDEXED = 1, "read at positions that another input gives"

    NAMED_DATA = -100, "named by inputs="
    MEETS_TRAINED = -8, "multiplied with trained weights alone"
    BATCHED = -4, "a dim flows through the products as a batch does"
    CONVOLVED = -4, "what a kernel convolves"
    WHOLE_NUMBERS = -3, "integers of more than 8 bits, or booleans"
    CARRIED = -2, "its next value depends on other inputs, and the step has no gradients"
    FIRST = -1, "the first operand of a product of two inputs"
    ONE_ARRAY = -1, "an argument that is one array, beside arguments that are trees"

    def __init__(self, points: int, words: str) -> None:
        self.points = points
        self.words = words


type Found = Mapping[int, frozenset[Evidence]]
"""The evidence of each input, by position."""

STRONG = 4
"""Points from which inputs of one argument may have different roles."""
DOUBTFUL = 1
"""Points up to which a role is doubtful, if there is evidence at all."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """Inputs whose roles are to be found, and those whose roles are known, by position.

    unknown: inputs with dims that may be weights or data. trained: parameters that
        gradients update. state: those of `unknown` whose next value is handed back;
        `kept` of them unchanged, or with something added.
    named_weights, named_data: those of `unknown` whose role the user gives.
    """

    unknown: frozenset[int]
    trained: frozenset[int]
    state: frozenset[int]
    kept: frozenset[int]
    named_weights: frozenset[int]
    named_data: frozenset[int]


def find_evidence(
    graph: Graph, paths: Sequence[str], inputs: Candidates, depends: Sequence[int]
) -> Found:
    """The evidence of each unknown input.

    depends: for each value, as bits, the inputs it depends on in the first iteration.
    """
    direct = find_dependence(graph, through_products=False)
    flow = find_batch_flow(graph, inputs.unknown, inputs.trained, direct)
    found: dict[int, set[Evidence]] = {i: set() for i in inputs.unknown}
    for position, evidence in (
        *((i, Evidence.NAMED_WEIGHT) for i in inputs.named_weights),
        *((i, Evidence.NAMED_DATA) for i in inputs.named_data),
        *_of_state(graph, inputs),
        *_of_types(graph, paths, inputs),
        *_of_products(graph, inputs, flow, depends, direct),
        *_of_tables(graph, inputs, direct),
        *((i, Evidence.BATCHED) for i in flow.batched),
        *((i, Evidence.UNBATCHED) for i in flow.unbatched),
    ):
        found[position].add(evidence)
    return {i: frozenset(evidence) for i, evidence in found.items()}


def _of_types(
    graph: Graph, paths: Sequence[str], inputs: Candidates
) -> Iterator[tuple[int, Evidence]]:
    """Evidence of dtypes, and of how inputs are passed in and handed back."""
    alone = {p for p in paths if not any(o.startswith(f"{p}.") for o in paths)}
    has_trees = any(p.partition(".")[2] for p in paths)
    for i in inputs.unknown:
        dtype = graph.program.inputs[i].dtype
        if not is_inexact(dtype) and not is_small_integer(dtype):
            yield i, Evidence.WHOLE_NUMBERS
        is_argument = "." not in paths[i] and paths[i] in alone
        if is_argument and has_trees and i not in inputs.state:
            yield i, Evidence.ONE_ARRAY


def _of_state(graph: Graph, inputs: Candidates) -> Iterator[tuple[int, Evidence]]:
    """Evidence of the next values of state that no gradient updates."""
    yield from ((i, Evidence.HANDED_BACK) for i in inputs.kept)
    program = graph.program
    if gradient_values(program):
        return
    depends = find_dependence(graph)
    for output, position in graph.ties.items():
        value = program.outputs[output]
        if position in inputs.state and value in graph.number:
            if depends[graph.number[value]] & ~(1 << position):
                yield position, Evidence.CARRIED


def _of_products(
    graph: Graph,
    inputs: Candidates,
    flow: BatchFlow,
    depends: Sequence[int],
    direct: Sequence[int],
) -> Iterator[tuple[int, Evidence]]:
    """Evidence of products; of most kinds only the first that reads an input counts.

    If an operand is made from several inputs, such as tokens, a table and a norm's scale,
    those with a batch or of whole numbers are the data.
    """
    values = graph.program.inputs
    whole = _bits(i for i in inputs.unknown if _is_whole_number(values[i].dtype))
    unknown, trained = _bits(inputs.unknown), _bits(inputs.trained)
    likely = whole | _bits(flow.batched)
    seen = 0
    for node in graph.nodes:
        if not node.is_contraction or len(node.ins) < 2:
            continue
        reads = [direct[value] & unknown for value, _ in node.ins[:2]]
        full = [depends[value] & (unknown | trained) for value, _ in node.ins[:2]]
        is_alone = [
            f and f == d and not f & whole for f, d in zip(full, reads, strict=True)
        ]
        for side in (0, 1):
            mine, other = full[side], full[1 - side]
            new = reads[side] & ~seen
            if other and not other & ~trained and not mine & trained:
                data = reads[side] & likely or reads[side]
                yield from _each(data, Evidence.MEETS_TRAINED)
            elif is_alone[side] and all(is_alone):
                yield from _of_pair(graph, node, side, new, reads)
            elif is_alone[side] and other & ~mine:
                yield from _each(new, Evidence.LATER)
        seen |= reads[0] | reads[1]


def _of_pair(
    graph: Graph, node: Node, side: int, new: int, reads: Sequence[int]
) -> Iterator[tuple[int, Evidence]]:
    """Evidence of a product whose operands are inputs, perhaps scaled or shifted."""
    assert node.op is not None
    if node.op.kind != "dot_general":
        yield from _each(new, (Evidence.CONVOLVED, Evidence.KERNEL)[side])
        return
    yield from _each(new, (Evidence.FIRST, Evidence.SECOND)[side])
    values = graph.program.inputs
    scaled = [
        len(own) > 1 and any(is_small_integer(values[i].dtype) for i in own)
        for own in map(members, reads)
    ]
    if scaled[side] and not scaled[1 - side]:
        yield from _each(new, Evidence.SCALED)


def _of_tables(
    graph: Graph, inputs: Candidates, direct: Sequence[int]
) -> Iterator[tuple[int, Evidence]]:
    """Evidence of inputs that are read at positions which another input gives."""
    unknown = _bits(inputs.unknown)
    for node in graph.nodes:
        if node.op is None or node.op.kind != "gather" or len(node.ins) < 2:
            continue
        table, index = (direct[value] for value, _ in node.ins[:2])
        if index & unknown & ~table:
            yield from _each(table & unknown & ~index, Evidence.INDEXED)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Roles of the unknown inputs: weights, data and other constants, by position.

    constants: whole numbers among weights, such as tables of positions.
    doubts: for each input whose role few points decide, its evidence.
    """

    weights: frozenset[int]
    data: frozenset[int]
    constants: frozenset[int]
    doubts: Mapping[int, frozenset[Evidence]]


def weigh(
    graph: Graph, paths: Sequence[str], inputs: Candidates, found: Found
) -> Verdict:
    """The role that the evidence gives each unknown input.

    Inputs of one argument have one role, unless there is strong evidence for both. Then
    the same holds for each subtree of the argument, and the arrays beside the subtrees are
    data.
    """
    points = {i: sum(e.points for e in found[i]) for i in found}
    roles: dict[int, int] = {}
    groups: dict[str, list[int]] = {}
    for i in sorted(found):
        groups.setdefault(paths[i].partition(".")[0], []).append(i)
    for group, own in groups.items():
        _weigh_group(paths, group, own, points, roles)
    values = graph.program.inputs
    whole = {i for i in found if _is_whole_number(values[i].dtype)}
    weights = {i for i, sign in roles.items() if sign > 0}
    weights |= {i for i, sign in roles.items() if not sign and i in inputs.state}
    doubts = {
        i: found[i]
        for i, sign in roles.items()
        if abs(sign) <= DOUBTFUL and found[i] & _DECISIVE
    }
    return Verdict(
        frozenset(weights - whole),
        frozenset(found.keys() - weights),
        frozenset(weights & whole),
        doubts,
    )


_DECISIVE = frozenset({Evidence.FIRST, Evidence.SECOND, Evidence.LATER})
"""Evidence without which a wrong role does little harm: no product reads the input."""


def _weigh_group(
    paths: Sequence[str],
    group: str,
    own: Sequence[int],
    points: Mapping[int, int],
    roles: dict[int, int],
) -> None:
    """Add the sum of the points of each input's group to `roles`.

    group: the path of an argument, or of a subtree. own: its unknown inputs.
    """
    least, most = (choose(points[i] for i in own) for choose in (min, max))
    total = sum(points[i] for i in own)
    if least > -STRONG or most < STRONG:
        is_each = least < 0 < most and abs(total) <= DOUBTFUL and _are_arguments(paths, own)
        roles.update({i: points[i] if is_each else total for i in own})
        return
    parts: dict[str, list[int]] = {}
    for i in own:
        name = paths[i][len(group) + 1 :].partition(".")[0]
        parts.setdefault(f"{group}.{name}", []).append(i)
    for part, inner in parts.items():
        if len(inner) > 1 or paths[inner[0]] != part:
            _weigh_group(paths, part, inner, points, roles)
        else:
            alone = points[inner[0]]
            roles[inner[0]] = alone if abs(alone) > 2 * STRONG else -STRONG


def _are_arguments(paths: Sequence[str], own: Sequence[int]) -> bool:
    """Whether inputs are arrays of a function's `*args`, each an argument of its own."""
    return all(re.fullmatch(r"[^.]+\.\d+", paths[i]) for i in own)


def _each(bits: int, evidence: Evidence) -> Iterator[tuple[int, Evidence]]:
    return ((i, evidence) for i in members(bits))


def _bits(positions: Collection[int] | Iterator[int]) -> int:
    return sum(1 << i for i in positions)


def _is_whole_number(dtype: str) -> bool:
    return not is_inexact(dtype) and not is_small_integer(dtype)
