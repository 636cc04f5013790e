"""Choices of an integer program: how to read them from decisions, and to apply them.

They are read from the propagation state of a plan, or from the choices of another
program. They are applied by a tactic.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import (
    Cause,
    Graph,
    Node,
    PartialSums,
    State,
    SumRoutes,
)
from meshwright.partitioner.tactics import TacticKind, Workspace
from meshwright.planner.integer_program.integer_program import IntegerProgram
from meshwright.planner.strategies.strategy import (
    ALL_REDUCE,
    KEEP_PARTIAL,
    DimAxes,
    Strategy,
    StrategySet,
)


def read_strategy(state: State, partial_sums: PartialSums, node: Node) -> Strategy:
    """The strategy of a node that corresponds to a state's decisions.

    A strategy is one way to partition the node.
    """
    axes = tuple(sorted((f, a) for f, a in state.axes_of[node.index].items() if a))
    rule = node.rule
    if rule is None or not node.outs:
        return Strategy(axes)
    partial = tuple(a for a in state.size if partial_sums.addends(node, a))
    value = node.outs[0][0]
    opened = [
        axis
        for axis in state.size
        if axis in partial or state.factor_of[node.index].get(axis) in rule.reductions
    ]
    reductions = tuple(
        (axis, _end(state, partial_sums, value, axis)) for axis in opened
    )
    return Strategy(axes, partial, reductions)


def _end(state: State, partial_sums: PartialSums, value: int, axis: str) -> int:
    dim = state.scattered.get((value, axis))
    if dim is not None:
        return dim
    return KEEP_PARTIAL if partial_sums.is_passed_on(value, axis) else ALL_REDUCE


def read_choices(program: IntegerProgram, state: State) -> tuple[int, ...]:
    """The choices of an integer program that are nearest to a state's decisions.

    Each shared value gets its cheapest sharding, given the strategies of the node
    classes.
    """
    partial_sums = PartialSums(state)
    chosen: list[int] = []
    for each, own in zip(program.reduced_graph.classes, program.choices, strict=True):
        wanted = read_strategy(state, partial_sums, each.node)
        chosen.append(_nearest(own, wanted))
    return (*chosen, *_cheapest_shardings(program, chosen))


def spread_choices(
    source: IntegerProgram,
    choices: Sequence[int],
    target: IntegerProgram,
    sub_axes: Sequence[str],
    all_sub_axes: Sequence[str],
) -> tuple[int, ...]:
    """Choices of a one-axis mesh, carried over to the mesh of `target`.

    sub_axes: all sub-axes of the one axis.
    all_sub_axes: the sub-axes of all axes of the target's mesh, which together take the
        one axis's place.
    """
    chosen: list[int] = []
    run, whole = tuple(sub_axes), tuple(all_sub_axes)
    pairs = zip(source.choices, target.choices, choices, strict=False)
    for own, others, choice in pairs:
        strategy = own[choice]
        axes = tuple((f, whole) for f, a in strategy.axes if a == run)
        partial = whole if strategy.partial_inputs else ()
        ends = {end for _, end in strategy.reductions}
        reductions = tuple((axis, end) for end in ends for axis in whole)
        chosen.append(_nearest(others, Strategy(axes, partial, reductions)))
    return (*chosen, *_cheapest_shardings(target, chosen))


def carry_over(
    source: IntegerProgram, choices: Sequence[int], target: IntegerProgram
) -> tuple[int, ...]:
    """Choices of one integer program, carried over to that of a similar program.

    Nodes are matched by op and source line.
    """
    known = {
        _identity(each.node): own[choice]
        for each, own, choice in zip(
            source.reduced_graph.classes, source.choices, choices, strict=False
        )
    }
    none = Strategy()
    chosen = [
        _nearest(own, known.get(_identity(each.node), none))
        for each, own in zip(target.reduced_graph.classes, target.choices, strict=True)
    ]
    return (*chosen, *_cheapest_shardings(target, chosen))


def _identity(node: Node) -> object:
    return node.label, str(node.source), node.sizes, node.wire


def _nearest(own: StrategySet, wanted: Strategy) -> int:
    if wanted in own.strategies:
        return own.strategies.index(wanted)
    same = [i for i, s in enumerate(own) if s.axes == wanted.axes]
    return same[0] if same else 0


def _cheapest_shardings(program: IntegerProgram, chosen: Sequence[int]) -> list[int]:
    """The cheapest sharding of each shared value, given the choices of node classes."""
    first = len(program.choices)
    totals = [np.zeros(len(shared.shardings)) for shared in program.shared_values]
    for pair in program.pair_costs:
        if pair.second >= first:
            totals[pair.second - first] += pair.seconds[chosen[pair.first]]
        elif pair.first >= first:
            totals[pair.first - first] += pair.seconds[:, chosen[pair.second]]
    return [int(np.argmin(total)) for total in totals]


@dataclass(frozen=True, slots=True, repr=False)
class ChosenStrategies:
    """A tactic that applies the decisions of a search, node by node.

    It is valid for the searched program only.
    strategies: the strategy of each node.
    kept: for values with several readers, the axes that split the copy that the readers
        share.
    shape: numbers of nodes and of values of the program.
    """

    strategies: tuple[Strategy, ...]
    kept: tuple[tuple[int, DimAxes], ...]
    shape: tuple[int, int]
    name: str = "auto"
    axes = ()
    kind = TacticKind.STRATEGY
    rewrite = None

    def apply(self, work: Workspace) -> None:
        """Write all decisions that the state lacks; nothing is left to propagate.

        If a loop adds all-reduced sums to an accumulator, the all-reduce is not decided
        here: a search prices each iteration alone, and does not see that one all-reduce
        after the loop is cheaper.
        """
        shape = shape_of(work.graph)
        if self.shape != shape:
            raise TacticError(
                f"{self} was found for a program of {self.shape[0]} nodes and "
                f"{self.shape[1]} values, but this program has {shape[0]} nodes and "
                f"{shape[1]} values; search again"
            )
        state, cause = work.state, Cause("tactic", str(self))
        routes = SumRoutes(work.graph)
        for node, strategy in zip(work.graph.nodes, self.strategies, strict=True):
            decided = state.factor_of[node.index]
            for factor, axes in strategy.axes:
                for axis in axes:
                    if axis not in decided:
                        state.assign(node, axis, factor, cause)
            for axis, end in strategy.reductions:
                reduction = node.outs[0][0], axis
                if end >= 0 and reduction not in state.scattered:
                    state.scatter(*reduction, end)
                is_open = end == ALL_REDUCE and routes.is_delayed(reduction[0])
                if end != KEEP_PARTIAL and not is_open:
                    state.settle(*reduction)
        for value, split in (each for each in self.kept if _matters(state, *each)):
            state.keep(value, split)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<{self}: found strategies of {self.shape[0]} nodes>"


def _matters(state: State, value: int, split: DimAxes) -> bool:
    """Whether it changes the plan to keep a value in the sharding `split`.

    It does not if every reader reads that sharding, or the sharding in which the value
    is computed.
    """
    graph = state.graph
    producer = graph.nodes[graph.producer[value]]
    readers = [graph.nodes[index] for index in graph.consumers[value]]
    if any(n.is_loop_constant or n.is_remat_constant for n in (producer, *readers)):
        return True
    if any((value, axis) in state.scattered for axis in state.size):
        return True
    port = next(port for port in producer.outs if port[0] == value)
    forms = {split, state.sharding_at(producer, port).dims}
    return any(s.dims not in forms for n in readers for s in state.reads(n, value))


def shape_of(graph: Graph) -> tuple[int, int]:
    """Numbers of nodes and of values of a graph."""
    return len(graph.nodes), len(graph.values)


def chosen_strategies(
    program: IntegerProgram, choices: tuple[int, ...], state: State, name: str
) -> ChosenStrategies:
    """The tactic named `name` that applies choices of an integer program."""
    reduced = program.reduced_graph
    strategies = tuple(program.choices[c][choices[c]] for c in reduced.class_of)
    kept: dict[int, DimAxes] = {}
    nodes, first = state.graph.nodes, len(program.choices)
    for shared, choice in zip(program.shared_values, choices[first:], strict=True):
        split, partial = shared.shardings[choice]
        for index in () if partial else reduced.classes[shared.producer].members:
            kept[nodes[index].outs[shared.result][0]] = split
    shape = shape_of(state.graph)
    return ChosenStrategies(strategies, tuple(kept.items()), shape, name)
