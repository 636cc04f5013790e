"""Roles of state: parameters, on which the loss depends, and the state of an optimizer."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from meshwright.partitioner.propagate import Graph
from meshwright.partitioner.structure.dependence import members
from meshwright.program.analysis.updates import (
    elementwise_sources,
    gradient_values,
    update_path,
)
from meshwright.program.ir import Value


@dataclass(frozen=True, slots=True)
class Updates:
    """Positions of a program's state, by the way in which it gets its next value.

    by_gradient: by a gradient of JAX. kept: otherwise, unchanged or by elementwise ops.
    others: in any other way, as a cache or a history.
    """

    by_gradient: frozenset[int]
    kept: frozenset[int]
    others: frozenset[int]


def find_updates(graph: Graph) -> Updates:
    """The `Updates` of a program's state."""
    program = graph.program
    gradients, sources = gradient_values(program), elementwise_sources(program)
    by_gradient: set[int] = set()
    kept: set[int] = set()
    for output, position in graph.ties.items():
        value = program.outputs[output]
        if value in gradients:
            by_gradient.add(position)
        elif isinstance(value, Value) and (
            program.inputs[position] in update_path(sources, value)
        ):
            kept.add(position)
    others = set(graph.ties.values()) - by_gradient - kept
    return Updates(frozenset(by_gradient), frozenset(kept), frozenset(others))


def find_trained(
    graph: Graph,
    depends: Sequence[int],
    first: Sequence[int],
    updates: Updates,
    state: set[int],
) -> set[int]:
    """The state inputs that act on a loss, perhaps without being parameters.

    In a step with gradients, state that they do not update may be a frozen weight, or a
    cache; it counts if another output than new state depends on it. In a step without
    gradients the same holds for state that is neither kept nor added to.
    """
    loose = state & (updates.others | updates.kept)
    if not updates.by_gradient:
        return _trained(graph, depends, first, state) | _read(
            graph, depends, state & updates.others
        )
    return _trained(graph, depends, first, state - loose) | _read(graph, depends, loose)


def outputs_of(graph: Graph, depends: Sequence[int]) -> list[tuple[int, int]]:
    """Positions of computed outputs, each with the inputs it depends on, as bits."""
    atoms = enumerate(graph.program.outputs)
    return [(i, depends[graph.number[a]]) for i, a in atoms if a in graph.number]


def _read(graph: Graph, depends: Sequence[int], some: set[int]) -> set[int]:
    """The inputs among `some` on which a loss depends, or new state without a loss."""
    outputs = outputs_of(graph, depends)
    losses = [bits for o, bits in outputs if o not in graph.ties]
    new = [bits for o, bits in outputs if graph.ties.get(o) not in some]
    read = reduce(or_, losses or new, 0)
    return {i for i in some if read >> i & 1}


def _trained(
    graph: Graph, depends: Sequence[int], first: Sequence[int], state: set[int]
) -> set[int]:
    """The state inputs on which other outputs than new state depend, such as a loss.

    An output that depends on all of the state, such as the norm of the new parameters,
    tells nothing, unless before the first update it depends on only part of the state.
    If even then an output depends on all of the state, then all of it is trained. If there
    is no output but new state, `_influential` decides.
    """
    everything = sum(1 << i for i in state)

    def read(dependence: Sequence[int]) -> set[int]:
        """The state, as bits, that each other output than new state depends on."""
        outputs = outputs_of(graph, dependence)
        return {bits & everything for o, bits in outputs if o not in graph.ties} - {0}

    early = read(first)
    narrow = early - {everything}
    trained = reduce(or_, narrow, 0)
    if not narrow and everything in early:
        return state
    if state and not narrow:
        return {*members(trained)} | _influential(graph, depends, state)
    return {*members(trained)}


def _influential(graph: Graph, depends: Sequence[int], state: set[int]) -> set[int]:
    """State leaves on which many updated leaves depend, and which so are parameters.

    Every gradient depends on every parameter. Only few updated leaves, the leaf itself
    and its parameter, depend on a leaf of optimizer state: fewer than five. A moment always
    depends on itself, a gradient that is returned alone may not.
    """
    new = [bits for o, bits in outputs_of(graph, depends) if o in graph.ties]
    count = {i: sum(bits >> i & 1 for bits in new) for i in state}
    most = max(count.values())
    own = {graph.ties[o]: b for o, b in outputs_of(graph, depends) if o in graph.ties}
    return {
        i
        for i, n in count.items()
        if n == most or n > max(most / 2, 4) or not own.get(i, 0) >> i & 1
    }
