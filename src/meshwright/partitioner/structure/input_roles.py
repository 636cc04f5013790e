"""Roles of a step's inputs, found by how the program uses them and never by names.

State is every input whose updated value the step returns (`graph.ties`). Parameters are
the state on which the loss depends. Other state is optimizer state, which includes the
statistics of a batch norm. State that no gradient updates, and all other arrays except
for PRNG keys, are weights or data by `evidence.py`. Weights are floats, or integers of 8
bits or less: quantized weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_

from meshwright.partitioner.propagate import Graph, Node
from meshwright.partitioner.structure.dependence import (
    find_dependence,
    find_first_dependence,
    members,
)
from meshwright.partitioner.structure.evidence import (
    Candidates,
    Evidence,
    find_evidence,
    weigh,
)
from meshwright.partitioner.structure.views import is_key
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.program.analysis.updates import (
    elementwise_sources,
    gradient_values,
    update_path,
)
from meshwright.program.ir import Value, is_small_integer
from meshwright.program.rules.factors import is_inexact


@dataclass(frozen=True, slots=True, eq=False)
class InputRoles:
    """The positions of a step's inputs by role, and the dependence of values.

    params: inputs that are parameters, trained or frozen.
    carried: state that is neither parameter nor optimizer state, such as a cache.
    constants: whole numbers among parameters, such as tables of positions.
    doubts: for each input whose role is doubtful, the evidence.
    owner: for each optimizer leaf, the parameters whose updated values depend on it.
    depends: for each value, by number, the inputs it depends on, as a bit set.
    first: the same as `depends`, as if the step had updated no state yet.
    """

    params: tuple[int, ...]
    optimizer: tuple[int, ...]
    carried: tuple[int, ...]
    data: tuple[int, ...]
    constants: tuple[int, ...]
    doubts: Mapping[int, frozenset[Evidence]]
    owner: dict[int, tuple[int, ...]]
    depends: Sequence[int]
    first: Sequence[int]


@dataclass(frozen=True, slots=True)
class NamedRoles:
    """Positions of the inputs that the user calls parameters, or data."""

    params: frozenset[int] = frozenset()
    inputs: frozenset[int] = frozenset()


UNNAMED = NamedRoles()


def find_roles(work: Workspace, named: NamedRoles = UNNAMED) -> InputRoles:
    """The roles of all inputs of a program: parameters, optimizer state, data."""
    return _find_roles(work.graph, tuple(work.paths), named)


@lru_cache(maxsize=4)  # several tactics of one partitioning ask
def _find_roles(
    graph: Graph, paths: tuple[str, ...], named: NamedRoles
) -> InputRoles:
    depends, first = find_dependence(graph), find_first_dependence(graph)
    # The first iteration of a loop may have constants where others have data.
    early = [one or every for one, every in zip(first, depends, strict=True)]
    inputs = graph.program.inputs
    arrays = {i for i, node in enumerate(graph.input_nodes) if _is_array(graph, node)}
    floats = {i for i, value in enumerate(inputs) if is_inexact(value.dtype)}
    quantized = {i for i in arrays - floats if is_small_integer(inputs[i].dtype)}
    state = set(graph.ties.values())
    fixed = _handed_back_unchanged(graph)
    fixed &= floats | quantized
    trained = _trained(graph, depends, first, state & (floats | quantized) - fixed)
    trained |= _read(graph, depends, fixed) | (named.params & state)
    trained -= named.inputs
    candidates = _candidates(graph, arrays, trained, named)
    found = find_evidence(graph, paths, candidates, early)
    verdict = weigh(graph, paths, candidates, found)
    carried = candidates.state & verdict.data
    params = sorted((trained - carried) | verdict.weights)
    optimizer = sorted((state & floats) - trained - carried)
    return InputRoles(
        params=tuple(params),
        optimizer=tuple(optimizer),
        carried=tuple(sorted(carried)),
        data=tuple(sorted(verdict.data - carried)),
        constants=tuple(sorted(verdict.constants)),
        doubts=verdict.doubts,
        owner=_owners(graph, depends, params, optimizer),
        depends=depends,
        first=first,
    )


def _candidates(
    graph: Graph, arrays: set[int], trained: set[int], named: NamedRoles
) -> Candidates:
    """The inputs whose roles are to be found, and those that gradients update.

    arrays: inputs with dims that may be weights or data. trained: state on which the
        loss depends.
    """
    program = graph.program
    gradients, sources = gradient_values(program), elementwise_sources(program)
    state = set(graph.ties.values())
    by_gradient: set[int] = set()
    kept: set[int] = set()
    for output, position in graph.ties.items():
        value, own = program.outputs[output], program.inputs[position]
        if value in gradients:
            by_gradient.add(position)
        elif value is own or (
            isinstance(value, Value) and own in update_path(sources, value)
        ):
            kept.add(position)
    certain = (trained & by_gradient) - named.inputs
    unsure = (trained | named.inputs) & state & arrays - certain
    unknown = frozenset((arrays - state) | unsure)
    return Candidates(
        unknown,
        frozenset(certain & arrays),
        frozenset(unsure),
        frozenset(unsure & kept),
        named.params & unknown,
        named.inputs & unknown,
    )


def _is_array(graph: Graph, node: Node) -> bool:
    """Whether an input has dims, is no PRNG key, and is read or returned."""
    value = node.outs[0][0]
    named = graph.values[value]
    is_used = bool(graph.consumers[value]) or named in graph.program.outputs
    return bool(named.shape) and is_used and not is_key(graph, node)


def _handed_back_unchanged(graph: Graph) -> set[int]:
    """The state inputs that are outputs as they are."""
    program = graph.program
    return {i for o, i in graph.ties.items() if program.outputs[o] is program.inputs[i]}


def _read(graph: Graph, depends: Sequence[int], fixed: set[int]) -> set[int]:
    """Those of some inputs on which a loss depends, or any new state without a loss."""
    outputs = _outputs(graph, depends)
    losses = [bits for o, bits in outputs if o not in graph.ties]
    new = [bits for o, bits in outputs if graph.ties.get(o) not in fixed]
    read = reduce(or_, losses or new, 0)
    return {i for i in fixed if read >> i & 1}


def _trained(
    graph: Graph, depends: Sequence[int], first: Sequence[int], state: set[int]
) -> set[int]:
    """The state inputs on which other outputs than new state depend, such as a loss.

    An output that depends on all of the state, such as the norm of the new parameters,
    tells nothing, unless before the first update it depends on only part of the state.
    If no output tells anything, `_influential` decides.
    """
    everything = sum(1 << i for i in state)

    def read(dependence: Sequence[int]) -> set[int]:
        """The state, as bits, that each other output than new state depends on."""
        outputs = _outputs(graph, dependence)
        return {bits & everything for o, bits in outputs if o not in graph.ties} - {0}

    narrow = read(depends) - {everything}
    trained = reduce(or_, narrow, 0)
    if everything in read(depends):
        narrow = read(first) - {everything}
        trained |= reduce(or_, narrow, trained)
    if state and not narrow:
        return {*members(trained)} | _influential(graph, depends, state)
    return {*members(trained)}


def _influential(graph: Graph, depends: Sequence[int], state: set[int]) -> set[int]:
    """State leaves on which many updated leaves depend, and which so are parameters.

    Every gradient depends on every parameter. Only few updated leaves, the leaf itself
    and its parameter, depend on a leaf of optimizer state: fewer than five.
    """
    new = [bits for o, bits in _outputs(graph, depends) if o in graph.ties]
    count = {i: sum(bits >> i & 1 for bits in new) for i in state}
    most = max(count.values())
    return {i for i, n in count.items() if n == most or n > max(most / 2, 4)}


def _outputs(graph: Graph, depends: Sequence[int]) -> list[tuple[int, int]]:
    """Positions of computed outputs, each with the inputs it depends on, as bits."""
    atoms = enumerate(graph.program.outputs)
    return [(i, depends[graph.number[a]]) for i, a in atoms if a in graph.number]


def _owners(
    graph: Graph, depends: Sequence[int], params: list[int], optimizer: list[int]
) -> dict[int, tuple[int, ...]]:
    """The parameters of each optimizer leaf, first those of the leaf's own shape."""
    new = {graph.ties[o]: b for o, b in _outputs(graph, depends) if o in graph.ties}
    shapes = [value.shape for value in graph.program.inputs]
    owners: dict[int, tuple[int, ...]] = {}
    for leaf in optimizer:
        own = [param for param in params if new.get(param, 0) >> leaf & 1]
        owners[leaf] = tuple(sorted(own, key=lambda p: shapes[p] != shapes[leaf]))
    return owners
