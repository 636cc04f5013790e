"""Roles of a step's inputs, found by how the program uses them and never by names.

State is every input whose updated value the step returns (`graph.ties`). Parameters are
the state on which the loss depends. Other state is optimizer state, which includes the
statistics of a batch norm. State that no gradient updates, and all other arrays except
for PRNG keys, are weights or data by `evidence.py`. Weights are floats, or integers of 8
bits or less: quantized weights.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from meshwright.partitioner.propagate import Graph, Node
from meshwright.partitioner.structure.batch_flow import (
    BatchFlow,
    Reads,
    find_batch_flow,
)
from meshwright.partitioner.structure.dependence import (
    find_dependence,
    find_first_dependence,
    find_merged,
    products_of,
)
from meshwright.partitioner.structure.evidence import (
    Evidence,
    RoleCandidates,
    find_evidence,
)
from meshwright.partitioner.structure.named_roles import NamedRoles
from meshwright.partitioner.structure.state_roles import (
    Updates,
    find_trained,
    find_updates,
    outputs_of,
)
from meshwright.partitioner.structure.verdict import weigh
from meshwright.partitioner.structure.views import is_key
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.program.ir import is_small_integer
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


def find_roles(work: Workspace) -> InputRoles:
    """The roles of all inputs of a program: parameters, optimizer state, data."""
    return _find_roles(work.graph, tuple(work.paths), work.named_roles)


@lru_cache(maxsize=4)  # several tactics of one partitioning ask
def _find_roles(graph: Graph, paths: tuple[str, ...], named: NamedRoles) -> InputRoles:
    depends, first = find_dependence(graph), find_first_dependence(graph)
    # The first iteration of a loop may have constants where others have data.
    early = [one or every for one, every in zip(first, depends, strict=True)]
    products = products_of(graph)
    direct = find_dependence(graph, products)
    merged = find_merged(graph, paths, early, direct)
    if merged:
        direct = find_dependence(graph, products.difference(merged))
    reads = Reads(early, direct, merged)
    inputs = graph.program.inputs
    arrays = {i for i, node in enumerate(graph.input_nodes) if _is_array(graph, node)}
    floats = {i for i, value in enumerate(inputs) if is_inexact(value.dtype)}
    quantized = {i for i in arrays - floats if is_small_integer(inputs[i].dtype)}
    state = set(graph.ties.values())
    updates = find_updates(graph)
    trained = find_trained(graph, depends, first, updates, state & (floats | quantized))
    trained = (trained | (named.params & state)) - named.inputs
    unsure = _candidates(graph, arrays, trained, updates, named)
    candidates, flow = _settled(graph, paths, unsure, updates, reads)
    found = find_evidence(graph, paths, candidates, flow, reads)
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
        doubts={i: found.of[i] for i in sorted(verdict.doubts)},
        owner=_owners(graph, depends, params, optimizer),
        depends=depends,
        first=first,
    )


def _candidates(
    graph: Graph,
    arrays: set[int],
    trained: set[int],
    updates: Updates,
    named: NamedRoles,
) -> RoleCandidates:
    """The inputs whose roles are to be found, and those that gradients update.

    arrays: inputs with dims that may be weights or data. trained: state on which the
        loss depends.
    """
    state = set(graph.ties.values())
    certain = arrays & trained & updates.by_gradient - named.inputs
    unsure = (trained | named.inputs) & state & arrays - certain
    return RoleCandidates(
        frozenset((arrays - state) | unsure),
        frozenset(certain),
        frozenset(unsure),
        frozenset(unsure & updates.kept),
        named.params,
        named.inputs,
    )


NEARLY_ALL = 0.9
"""Share of the products that a batch runs through in a hand-written backward pass, too."""


def _settled(
    graph: Graph,
    paths: Sequence[str],
    inputs: RoleCandidates,
    updates: Updates,
    reads: Reads,
) -> tuple[RoleCandidates, BatchFlow]:
    """The candidates with all trained parameters among them, and the flow of their batch.

    Two kinds of state may be parameters or data. A single array that is given, and handed
    back with a gradient added, is data if a better batch runs through it, as through
    adversarial examples. Without gradients of JAX, what is handed back with something
    added is a parameter if the step has a loss, or no other output, and nearly all products
    have a batch even so.
    """
    arguments = [path.partition(".")[0] for path in paths]

    def flow_of(trained: frozenset[int]) -> BatchFlow:
        rest = (inputs.unknown | inputs.trained) - trained
        return find_batch_flow(graph, rest, trained, reads, arguments)

    if updates.by_gradient:
        likely = frozenset(i for i in inputs.trained if "." not in paths[i])
        likely -= inputs.named_weights
    else:
        likely = inputs.kept if _may_have_loss(graph) else frozenset[int]()
    with_them = flow_of(inputs.trained | likely)
    if not likely:
        return inputs, with_them
    without = flow_of(inputs.trained - likely)
    if updates.by_gradient:
        is_weights = with_them.score >= without.score
    else:
        is_weights = with_them.share >= NEARLY_ALL
    chosen = inputs.trained | likely if is_weights else inputs.trained - likely
    state = (inputs.state | likely) - chosen
    settled = replace(
        inputs,
        unknown=(inputs.unknown | likely) - chosen,
        trained=chosen,
        state=state,
        kept=inputs.kept & state,
    )
    return settled, with_them if is_weights else without


def _may_have_loss(graph: Graph) -> bool:
    """Whether a program has a scalar output besides its state, or no output but state."""
    outputs = enumerate(graph.program.outputs)
    others = [atom for o, atom in outputs if o not in graph.ties]
    return not others or any(not a.shape and is_inexact(a.dtype) for a in others)


def _is_array(graph: Graph, node: Node) -> bool:
    """Whether an input has dims, is no PRNG key, and is read or returned."""
    value = node.outs[0][0]
    named = graph.values[value]
    is_used = bool(graph.consumers[value]) or named in graph.program.outputs
    return bool(named.shape) and is_used and not is_key(graph, node)


def _owners(
    graph: Graph, depends: Sequence[int], params: list[int], optimizer: list[int]
) -> dict[int, tuple[int, ...]]:
    """The parameters of each optimizer leaf, first those of the leaf's own shape."""
    new = {graph.ties[o]: b for o, b in outputs_of(graph, depends) if o in graph.ties}
    shapes = [value.shape for value in graph.program.inputs]
    owners: dict[int, tuple[int, ...]] = {}
    for leaf in optimizer:
        own = [param for param in params if new.get(param, 0) >> leaf & 1]
        owners[leaf] = tuple(sorted(own, key=lambda p: shapes[p] != shapes[leaf]))
    return owners
