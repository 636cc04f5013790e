"""The reason for a collective: one sentence, and the chain of decisions behind it.

The words: a node is an op or input of the propagation graph. A factor is a set of dims of a
node that are split together. To cut is to split a dim along a mesh axis.
"""

import math
from collections import Counter

from meshwright.app.explain.names import (
    ProgramNames,
    cause_chain,
    describe_conflict,
    origin_of,
)
from meshwright.partitioner.lower import Origin
from meshwright.partitioner.propagate import Node, why_not
from meshwright.program.ir import Op, Value

Why = tuple[str, tuple[str, ...]]
"""A sentence that says why, and the chain of decisions behind it, the nearest first."""


def explain_collective(names: ProgramNames, op: Op, origin: Origin) -> Why:
    """The reason for one collective op of a device program.

    origin: the value, node and axes for which lowering inserted the collective.
    """
    reason, chain = _explain_any(names, op, origin)
    if origin.num_values > 1:
        reason += _together_with(names, op, origin)
    if origin.is_ahead:
        reason += "; gathered one iteration ahead (overlap)"
    if origin.is_overlapped:
        reason += "; in parts, each beside a part of the product (overlap)"
    return reason, chain


def _explain_any(names: ProgramNames, op: Op, origin: Origin) -> Why:
    node = names.work.graph.nodes[origin.node]
    if not origin.is_read:
        return _explain_reduction(names, op, origin, node)
    special = _special_cuts(names, node, origin)
    if special:
        return _explain_inside(names, op, node, special)
    if names.maker(origin.value) is node:
        return _explain_output(names, origin, node)
    return _explain_read(names, op, origin, node)


_NAMED = 8
"""Largest number of the values of a combined collective that a reason names."""

# -- operands --------------------------------------------------------------------------


def _explain_read(names: ProgramNames, op: Op, origin: Origin, node: Node) -> Why:
    """The reason for resharding an operand: the op needs it in another sharding."""
    axis = origin.axes[0]
    position, dim = _operand(names, origin, node)
    label = node.op.kind if node.op is not None else "the input"
    maker = names.maker(origin.value)
    stored = f"{names.value(origin.value)} is stored cut on dim {dim} along"
    need = f"needed {_need(names, node, (position, dim), axis)}"
    if op.kind == "permute" and not origin.is_overlapped:
        need = "the axes that are gathered must come last"
    reason = (
        f"operand {position} of {label}, {stored} {names.axes(origin.axes)}"
        f"{_since(names, maker, axis)}, "
        f"but {need}"
    )
    chain = [f"stored: {line}" for line in cause_chain(names, maker, axis)]
    chain += [f"used: {line}" for line in cause_chain(names, node, axis)]
    return reason, tuple(chain)


def _operand(names: ProgramNames, origin: Origin, node: Node) -> tuple[int, int]:
    """The position of the operand that is resharded, and its dim that the axis splits."""
    axis = origin.axes[0]
    dim = names.state.dim_on(origin.value, axis)
    dim = 0 if dim is None or dim < 0 else dim
    if node.op is None:
        return 0, dim
    numbers = names.work.graph.number
    found = [
        position
        for position, atom in enumerate(node.op.operands)
        if isinstance(atom, Value) and numbers[atom] == origin.value
    ]
    factor = names.state.factor_of[node.index].get(axis)
    for position in found:
        if node.rule is None or factor not in node.rule.operands[position][dim]:
            return position, dim
    return (found[0] if found else 0), dim


def _since(names: ProgramNames, node: Node, axis: str) -> str:
    """Text on the tactic that began a cut: ` (since zero(...) cut state.params.w)`."""
    origin = origin_of(names, node, axis)
    return f" (since {origin})" if origin else ""


def _need(names: ProgramNames, node: Node, operand: tuple[int, int], axis: str) -> str:
    """Text for the sharding that an op needs of an operand along an axis, and why.

    operand: the pair (position of the operand, its dim that the axis splits).
    """
    state, quoted = names.state, names.axes((axis,))
    factor = state.factor_of[node.index].get(axis)
    if factor is not None:
        why = _need_other(names, node, operand, factor)
        return f"{why}{_since(names, node, axis)}"
    if axis in state.blocked[node.index]:
        return f"whole: a tactic keeps {names.node(node)} whole along {quoted}"
    conflict = state.conflicts.get((node.index, axis))
    if conflict is not None:
        return f"whole: {describe_conflict(names, conflict)}"
    factors = _factors(node, *operand)
    if not factors:
        why = node.rule.opaque if node.rule is not None else ""
        label = node.op.kind if node.op is not None else "an input"
        return f"whole: {why or f'{label} cannot be cut on that dim'}"
    refusals = [why_not(state, node, axis, factor) for factor in factors]
    return f"whole along {quoted}" + (f": {refusals[0]}" if refusals[0] else "")


def _need_other(
    names: ProgramNames, node: Node, operand: tuple[int, int], factor: int
) -> str:
    """Text for the sharding of an operand that an op needs, if the op is split elsewhere.

    operand: the pair (position of the operand, its dim that the axis splits).
    factor: index of the op's own dim (Shardy: factor) that the axis splits.
    """
    position, dim = operand
    if factor in _factors(node, position, dim):
        return "with its axes in another order"
    place = names.place(node, factor)
    if node.rule is not None:
        for other, factors in enumerate(node.rule.operands[position]):
            if factor in factors:
                return f"cut on dim {other}, as this op cuts {place} along it"
    return f"whole, as this op cuts {place} along it"


def _factors(node: Node, position: int, dim: int) -> tuple[int, ...]:
    if node.rule is None:
        return (dim,) if dim < len(node.sizes) else ()
    return node.rule.operands[position][dim]


# -- outputs ---------------------------------------------------------------------------


def _explain_output(names: ProgramNames, origin: Origin, node: Node) -> Why:
    """The reason for resharding a result before it is stored or leaves a loop or branch."""
    axis = origin.axes[0]
    quoted = names.axes(origin.axes)
    chain = [f"made: {line}" for line in cause_chain(names, node, axis)]
    target, what, need = _destination(names, origin)
    reason = f"{what} is made cut along {quoted}{_since(names, node, axis)}, but {need}"
    if target is not None:
        chain += [f"stored: {line}" for line in cause_chain(names, target, axis)]
    return reason, tuple(chain)


def _destination(names: ProgramNames, origin: Origin) -> tuple[Node | None, str, str]:
    """The node that receives a value, a name for the value, and the sharding needed there.

    The node is `None` if the receiver is an ordinary op or output.
    """
    graph = names.work.graph
    position = names.output(origin.value)
    if position is not None and position in graph.ties:
        target = graph.input_nodes[graph.ties[position]]
        what = f"output {names.output_path(position)}"
        return (
            target,
            what,
            f"stored as the input {names.node(target)} that it replaces",
        )
    what = names.value(origin.value)
    readers = (graph.nodes[i] for i in graph.consumers[origin.value])
    target = next((reader for reader in readers if reader.wire is not None), None)
    if target is None:
        return None, what, "needed otherwise where it goes"
    axis = origin.axes[0]
    dim = names.state.dim_on(origin.value, axis)
    need = _need(names, target, (0, dim if dim is not None and dim >= 0 else 0), axis)
    return target, what, f"{names.node(target)} hands it on {need}"


# -- inside an op ----------------------------------------------------------------------


def _special_cuts(names: ProgramNames, node: Node, origin: Origin) -> list[int]:
    """The split factors of an op that make it exchange data inside, such as halos."""
    if node.rule is None or all(value != origin.value for value, _ in node.outs):
        return []
    cuts = names.state.axes_of[node.index]
    return [factor for factor in sorted(node.rule.special) if cuts.get(factor)]


def _explain_inside(names: ProgramNames, op: Op, node: Node, special: list[int]) -> Why:
    """The reason for a collective inside an op: halos, or other elements of neighbours."""
    cuts = names.state.axes_of[node.index]
    axes = [axis for f in special for axis in cuts[f]]
    places = ", ".join(names.place(node, f) for f in special)
    moved = (
        "exchanges edges" if op.kind == "permute" else "exchanges what its parts lack"
    )
    reason = f"{names.node(node)} {moved}, as {names.axes(axes)} cuts {places}"
    chain = (
        f"used: {line}" for axis in axes for line in cause_chain(names, node, axis)
    )
    return reason, tuple(chain)


# -- reductions ------------------------------------------------------------------------


def _explain_reduction(names: ProgramNames, op: Op, origin: Origin, node: Node) -> Why:
    """The reason for reducing partial sums at this point of the program."""
    axis = origin.axes[0]
    maker, through = _partial_source(names, node, axis)
    factor = names.state.factor_of[maker.index].get(axis)
    monoid = op.params.get("monoid", "sum")
    cut = "" if factor is None else f", whose {names.place(maker, factor)} is cut"
    reason = f"the {monoid} over {names.axes(origin.axes)} of {names.node(maker)}{cut}"
    if through:
        kinds = dict.fromkeys(n.op.kind for n in reversed(through) if n.op is not None)
        reason += f", carried through {', '.join(kinds)}"
    reason += f"; taken here for {_readers(names, op, origin)}"
    return reason, cause_chain(names, maker, axis)


def _together_with(names: ProgramNames, op: Op, origin: Origin) -> str:
    """Text for a collective over several values: `, together with 3 more scalars`.

    The first values are named if they are known.
    """
    count = origin.num_values
    is_scalars = math.prod(op.operands[0].shape) == count
    said = f", together with {count - 1} more {'scalars' if is_scalars else 'values'}"
    known = Counter(_short_name(names, value) for value in origin.others)
    shown = [f"{n} x {name}" if n > 1 else name for name, n in known.items()]
    if shown:
        more = ", ..." if len(shown) > _NAMED else ""
        said += f" ({', '.join(shown[:_NAMED])}{more})"
    return said


def _short_name(names: ProgramNames, value: int) -> str:
    """The path of an output, or else the name of the node that computes a value."""
    position = names.output(value)
    if position is not None:
        return names.output_path(position)
    return names.node(names.maker(value))


def _partial_source(
    names: ProgramNames, node: Node, axis: str
) -> tuple[Node, list[Node]]:
    """The node whose cut made a value a partial sum, and the nodes that passed it on."""
    todo: list[tuple[Node, list[Node]]] = [(node, [])]
    seen: set[int] = set()
    while todo:
        current, path = todo.pop()
        if current.index in seen:
            continue
        seen.add(current.index)
        if axis in names.state.factor_of[current.index]:
            return current, path
        for value, _ in reversed(current.ins):
            if names.partial_sums.is_partial(value, axis):
                todo.append((names.maker(value), [*path, current]))
    return node, []


def _readers(names: ProgramNames, op: Op, origin: Origin) -> str:
    """Text that names the ops or outputs that need the value reduced."""
    graph = names.work.graph
    nodes = [graph.nodes[i] for i in graph.consumers[origin.value]]
    readers = list(dict.fromkeys(names.node(n) for n in nodes))
    position = names.output(origin.value)
    if position is not None:
        readers.insert(0, f"output {names.output_path(position)}")
    if not readers:
        return "nobody"
    more = f" and {len(readers) - 1} more" if len(readers) > 1 else ""
    dim = op.params.get("dim")
    cut = f", cut on dim {dim}" if op.kind == "reduce_scatter" else ""
    return f"{readers[0]}{more}{cut}"
