"""Decisions about every node, as one tactic."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshwright.errors import TacticError
from meshwright.partitioner.propagate import Cause, Graph, State
from meshwright.partitioner.tactics import TacticKind, Workspace
from meshwright.planner.prices.integer_program import IntegerProgram
from meshwright.planner.prices.strategy import KEEP_PARTIAL, Cuts, Strategy


@dataclass(frozen=True, slots=True)
class ChosenStrategies:
    """What a search decided, node by node; it fits the program that was searched.

    strategies: by node. kept: the form in which values are kept for their readers, by
    value. shape: numbers of nodes and values of that program.
    """

    strategies: tuple[Strategy, ...] = field(repr=False)
    kept: tuple[tuple[int, Cuts], ...] = field(repr=False)
    shape: tuple[int, int]
    name: str = "auto"
    axes = ()
    kind = TacticKind.STRATEGY
    rewrite = None

    def apply(self, work: Workspace) -> None:
        """Write all decisions that are not taken yet; nothing is left to propagate."""
        if self.shape != shape_of(work.graph):
            raise TacticError(
                f"{self} was found for a program of {self.shape[0]} nodes and "
                f"{self.shape[1]} values, this one has {shape_of(work.graph)}; "
                "search again"
            )
        state, cause = work.state, Cause("tactic", str(self))
        for node, strategy in zip(work.graph.nodes, self.strategies, strict=True):
            decided = state.factor_of[node.index]
            for factor, axes in strategy.axes:
                for axis in axes:
                    if axis not in decided:
                        state.assign(node, axis, factor, cause)
            for axis, what in strategy.reductions:
                sum_ = node.outs[0][0], axis
                if what >= 0 and sum_ not in state.scattered:
                    state.scatter(*sum_, what)
                if what != KEEP_PARTIAL:
                    state.settle(*sum_)
        for value, form in self.kept:
            state.keep(value, form)

    def __str__(self) -> str:
        return self.name


def shape_of(graph: Graph) -> tuple[int, int]:
    """How many nodes and values a graph has."""
    return len(graph.nodes), len(graph.values)


def chosen_strategies(
    model: IntegerProgram, choices: tuple[int, ...], state: State, name: str
) -> ChosenStrategies:
    """The tactic that choices of a model's variables mean."""
    fold = model.reduced_graph
    strategies = tuple(model.choices[g][choices[g]] for g in fold.class_of)
    kept: dict[int, Cuts] = {}
    nodes = state.graph.nodes
    for view, choice in zip(
        model.shared_values, choices[len(model.choices) :], strict=True
    ):
        form, left = view.shardings[choice]
        for index in () if left else fold.classes[view.producer].members:
            kept[nodes[index].outs[view.result][0]] = form
    return ChosenStrategies(
        strategies, tuple(kept.items()), shape_of(state.graph), name
    )
