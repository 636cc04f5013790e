"""A strategy for every node, as one tactic."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Cause, Graph, State
from meshwright.partitioner.tactics import TacticKind, Workspace
from meshwright.planner.integer_program.integer_program import IntegerProgram
from meshwright.planner.strategies.strategy import KEEP_PARTIAL, DimAxes, Strategy


@dataclass(frozen=True, slots=True)
class ChosenStrategies:
    """A search's decisions, node by node; they fit only the program that was searched.

    strategies: by node. kept: per value with several readers, the axes that split it for
    them. shape: numbers of nodes and values of the program.
    """

    strategies: tuple[Strategy, ...] = field(repr=False)
    kept: tuple[tuple[int, DimAxes], ...] = field(repr=False)
    shape: tuple[int, int]
    name: str = "auto"
    axes = ()
    kind = TacticKind.STRATEGY
    rewrite = None

    def apply(self, work: Workspace) -> None:
        """Write all decisions that the state lacks; nothing is left to propagate."""
        shape = shape_of(work.graph)
        if self.shape != shape:
            raise TacticError(
                f"{self} was found for a program of {self.shape[0]} nodes and "
                f"{self.shape[1]} values, but this program has {shape[0]} nodes and "
                f"{shape[1]} values; search again"
            )
        state, cause = work.state, Cause("tactic", str(self))
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
                if end != KEEP_PARTIAL:
                    state.settle(*reduction)
        for value, split in self.kept:
            state.keep(value, split)

    def __str__(self) -> str:
        return self.name


def shape_of(graph: Graph) -> tuple[int, int]:
    """Numbers of nodes and of values of a graph."""
    return len(graph.nodes), len(graph.values)


def chosen_strategies(
    program: IntegerProgram, choices: tuple[int, ...], state: State, name: str
) -> ChosenStrategies:
    """The tactic that choices of an integer program's variables mean."""
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
