"""Roles of a step's inputs, found by data dependence and never by names.

State is every input whose updated value the step returns (`graph.ties`). Parameters are
the state on which the loss depends. Other state is optimizer state, which includes the
statistics of a batch norm. All other inputs with dims are data, except for PRNG keys
and for weights that the step reads and does not return. Such weights are floats, or
integers of 8 bits or less: quantized weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from operator import or_

from meshwright.partitioner.propagate import Graph, Node
from meshwright.partitioner.structure.dependence import (
    find_dependence,
    find_first_dependence,
    members,
)
from meshwright.partitioner.structure.views import is_key
from meshwright.partitioner.structure.workspace import Workspace
from meshwright.program.ir import is_small_integer
from meshwright.program.rules.factors import is_inexact


@dataclass(frozen=True, slots=True, eq=False)
class InputRoles:
    """The positions of a step's inputs by role, and the dependence of values.

    params: inputs that are parameters, trained or frozen.
    carried: state that is neither parameter nor optimizer state, such as a cache.
    owner: for each optimizer leaf, the parameters whose updated values depend on it.
    depends: for each value, by number, the inputs it depends on, as a bit set.
    first: the same as `depends`, as if the step had updated no state yet.
    """

    params: tuple[int, ...]
    optimizer: tuple[int, ...]
    carried: tuple[int, ...]
    data: tuple[int, ...]
    owner: dict[int, tuple[int, ...]]
    depends: Sequence[int]
    first: Sequence[int]


def find_roles(work: Workspace) -> InputRoles:
    """The roles of all inputs of a program: parameters, optimizer state, data."""
    return _find_roles(work.graph, tuple(work.paths))


@lru_cache(maxsize=1)  # several tactics of one partitioning ask
def _find_roles(graph: Graph, paths: tuple[str, ...]) -> InputRoles:
    depends, first = find_dependence(graph), find_first_dependence(graph)
    # The first iteration of a loop may have constants where others have data.
    early = [one or every for one, every in zip(first, depends, strict=True)]
    values = graph.program.inputs
    arrays = {i for i, node in enumerate(graph.input_nodes) if _is_array(graph, node)}
    floats = {i for i in range(len(values)) if is_inexact(values[i].dtype)}
    quantized = {i for i in arrays - floats if is_small_integer(values[i].dtype)}
    state = set(graph.ties.values())
    trained = _trained(graph, depends, first, state & floats)
    loose = ((floats & arrays) | quantized) - state
    weights, fed = _weights(graph, early, loose | (trained & arrays), trained)
    # All leaves of a subtree that holds weights and no data are weights.
    others = [paths[i] for i in sorted(fed | (arrays - floats - state - weights))]
    groups = {_group(paths[i], others) for i in weights} - {None}
    frozen = {i for i in loose - fed if any(_is_in(paths[i], g) for g in groups)}
    carried = {
        i for i in trained if frozen and not any(_is_in(paths[i], g) for g in groups)
    }
    params = sorted((trained - carried) | frozen)
    optimizer = sorted((state & floats) - trained)
    return InputRoles(
        params=tuple(params),
        optimizer=tuple(optimizer),
        carried=tuple(sorted(carried)),
        data=tuple(sorted(arrays - state - frozen)),
        owner=_owners(graph, depends, params, optimizer),
        depends=depends,
        first=first,
    )


def _is_array(graph: Graph, node: Node) -> bool:
    """Whether an input has dims, is no PRNG key, and is read or returned."""
    value = node.outs[0][0]
    named = graph.values[value]
    is_used = bool(graph.consumers[value]) or named in graph.program.outputs
    return bool(named.shape) and is_used and not is_key(graph, node)


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


def _weights(
    graph: Graph, depends: Sequence[int], leaves: set[int], trained: set[int]
) -> tuple[set[int], set[int]]:
    """Split input leaves into (weights, data) by the first product that reads each.

    In that product a weight is multiplied with a value that depends on data, and data
    with a value that depends on a weight. If both operands are leaves, the second is
    the weight, as in `x @ w`. A quantized weight may be scaled before the product, as in
    `x @ (w * scale)`: scales are weights, too, and `x` is data on either side.
    """
    weights: set[int] = set()
    data: set[int] = set()
    trained_bits = sum(1 << i for i in trained)
    inputs = graph.program.inputs
    quantized = {i for i in leaves if is_small_integer(inputs[i].dtype)}
    for node in graph.nodes:
        if not node.is_contraction or len(node.ins) < 2:
            continue
        both = [depends[value] for value, _ in node.ins[:2]]
        alone = [_own_leaves(bits, leaves - data, quantized) for bits in both]
        is_pair = all(alone)
        for side, own in enumerate(alone):
            new, other = own - weights, both[1 - side]
            if not new or not other & ~sum(1 << i for i in own):
                continue
            if is_pair and not trained & own and not other & trained_bits:
                (weights if side == _weight_side(alone) else data).update(new)
            else:
                (weights if other & ~trained_bits else data).update(new)
    return weights, data


def _own_leaves(bits: int, leaves: set[int], quantized: set[int]) -> set[int]:
    """The leaf that is an operand, or a quantized weight and its scales; else nothing.

    bits: the inputs on which the operand depends.
    """
    own = set(members(bits))
    is_operand = len(own) == 1 or len(own & quantized) == 1
    return own if is_operand and own <= leaves else set()


def _weight_side(alone: Sequence[set[int]]) -> int:
    """The operand that is the weight: the only one with scales, else the second."""
    left, right = (len(own) > 1 for own in alone)
    return 0 if left and not right else 1


def _group(path: str, others: Sequence[str]) -> str | None:
    """The path of the largest subtree that contains a leaf and none of the `others`.

    path: the path of the leaf. `None` if the subtree is a single leaf of a tree with
        other leaves, which may be data, as `y` in `batch.x @ batch.y`.
    """
    parts = path.split(".")
    for length in range(1, len(parts) + 1):
        prefix = ".".join(parts[:length])
        if not any(_is_in(other, prefix) for other in others):
            is_argument = length == 1 or (length == 2 and parts[1].isdigit())
            return prefix if is_argument or length < len(parts) else None
    return None


def _is_in(path: str, group: str | None) -> bool:
    return path == group or path.startswith(f"{group}.")


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
