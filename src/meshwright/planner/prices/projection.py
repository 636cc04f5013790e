"""From a state, or from choices on another mesh, to the choices that they mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from meshwright.partitioner.propagate import Carrier, Node, State
from meshwright.planner.prices.integer_program import IntegerProgram
from meshwright.planner.prices.strategy import ALL_REDUCE, KEEP_PARTIAL, Strategy


def read_strategy(state: State, carrier: Carrier, node: Node) -> Strategy:
    """What a state says of a node, as one of its strategies."""
    axes = tuple(sorted((f, a) for f, a in state.axes_of[node.index].items() if a))
    rule = node.rule
    if rule is None or not node.outs:
        return Strategy(axes)
    carries = tuple(a for a in state.size if carrier.addends(node, a))
    value = node.outs[0][0]
    opened = [
        axis
        for axis in state.size
        if axis in carries or state.factor_of[node.index].get(axis) in rule.reductions
    ]
    sums = tuple((axis, _end(state, carrier, value, axis)) for axis in opened)
    return Strategy(axes, carries, sums)


def _end(state: State, carrier: Carrier, value: int, axis: str) -> int:
    dim = state.scattered.get((value, axis))
    if dim is not None:
        return dim
    return KEEP_PARTIAL if carrier.can_carry(value, axis) else ALL_REDUCE


def read_choices(model: IntegerProgram, state: State) -> tuple[int, ...]:
    """The choices that come nearest to a state's decisions; views take what is best."""
    carrier = Carrier(state)
    chosen: list[int] = []
    for group, own in zip(model.reduced_graph.classes, model.choices, strict=True):
        wanted = read_strategy(state, carrier, group.node)
        chosen.append(_nearest(own, wanted))
    return (*chosen, *_best_views(model, chosen))


def spread_choices(
    source: IntegerProgram,
    choices: Sequence[int],
    target: IntegerProgram,
    units: Sequence[str],
    all_units: Sequence[str],
) -> tuple[int, ...]:
    """Choices for a mesh of one axis, with all axes of another mesh in its place.

    units: of the one axis. all_units: of all axes of the target's mesh.
    """
    chosen: list[int] = []
    run, whole = tuple(units), tuple(all_units)
    pairs = zip(source.choices, target.choices, choices, strict=False)
    for own, others, choice in pairs:
        strategy = own[choice]
        axes = tuple((f, whole) for f, a in strategy.axes if a == run)
        carries = whole if strategy.partial_inputs else ()
        ends = {what for _, what in strategy.reductions}
        sums = tuple((unit, end) for end in ends for unit in whole)
        chosen.append(_nearest(others, Strategy(axes, carries, sums)))
    return (*chosen, *_best_views(target, chosen))


def carry_over(
    source: IntegerProgram, choices: Sequence[int], target: IntegerProgram
) -> tuple[int, ...]:
    """The choices of a program for a like one, by what nodes are and where they stand."""
    known = {
        _likeness(group.node): own[choice]
        for group, own, choice in zip(
            source.reduced_graph.classes, source.choices, choices, strict=False
        )
    }
    none = Strategy()
    chosen = [
        _nearest(own, known.get(_likeness(group.node), none))
        for group, own in zip(target.reduced_graph.classes, target.choices, strict=True)
    ]
    return (*chosen, *_best_views(target, chosen))


def _likeness(node: Node) -> object:
    return node.label, str(node.source), node.sizes, node.wire


def _nearest(own: Sequence[Strategy], wanted: Strategy) -> int:
    if wanted in own:
        return own.index(wanted)
    same = [i for i, s in enumerate(own) if s.axes == wanted.axes]
    return same[0] if same else 0


def _best_views(model: IntegerProgram, chosen: Sequence[int]) -> list[int]:
    """Of each view the form that is cheapest for given choices of the groups."""
    first = len(model.choices)
    totals = [np.zeros(len(view.shardings)) for view in model.shared_values]
    for link in model.pair_costs:
        if link.second >= first:
            totals[link.second - first] += link.seconds[chosen[link.first]]
        elif link.first >= first:
            totals[link.first - first] += link.seconds[:, chosen[link.second]]
    return [int(np.argmin(total)) for total in totals]
