"""The search space of one program: its integer program on any mesh of a machine.

`planner/integer_program/builder.py` builds the integer program of one mesh.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from meshwright.errors import TacticError
from meshwright.machine import Machine, Mesh
from meshwright.machine.placement import place_mesh
from meshwright.partitioner.decide import axes_of, rewritten, start_workspace
from meshwright.partitioner.propagate import Graph, State
from meshwright.partitioner.tactics import Tactic, TacticKind, Workspace
from meshwright.planner.integer_program.builder import IntegerProgramBuilder
from meshwright.planner.integer_program.integer_program import IntegerProgram
from meshwright.planner.integer_program.live_counts import live_counts
from meshwright.planner.integer_program.projection import (
    ChosenStrategies,
    chosen_strategies,
)
from meshwright.planner.prices.compute_times import ComputeTimes
from meshwright.planner.prices.op_prices import OpPrices
from meshwright.planner.prices.resharding import ReshardingPrices, collective_lines
from meshwright.planner.prices.uniform_partition import price_ops
from meshwright.planner.prices.value_roles import EXPOSED, Role
from meshwright.planner.solve.optimum import Optimum
from meshwright.planner.solve.pricer import Pricer
from meshwright.planner.strategies.enumeration import Strategies
from meshwright.planner.strategies.symmetry import ReducedGraph, reduce_by_symmetry
from meshwright.predict.compilers.targets import compiler_of
from meshwright.program.capture import Captured
from meshwright.program.records import paused_collector


@dataclass(frozen=True, slots=True)
class PricedProgram:
    """A program on one mesh, with the integer program of its possible strategies.

    work: the program with the decisions already taken.
    pricer: object that predicts seconds and bytes of choices.
    builder: object that builds the integer program again if prices of collectives
        change.
    """

    work: Workspace
    model: IntegerProgram
    pricer: Pricer
    builder: IntegerProgramBuilder

    def tactic(self, optimum: Optimum, name: str) -> ChosenStrategies:
        """A tactic named `name` that applies the strategies of a solution."""
        return chosen_strategies(self.model, optimum.choices, self.work.state, name)


_ENTRIES_PER_S = 2e5
"""Entries of pair costs that the solver reads per second before its first round."""


def solving_s(priced: PricedProgram) -> float:
    """Least seconds that a solve takes, whatever its limits; 0 if negligible.

    They are negligible with up to two mesh axes; with three, each op has hundreds of
    strategies.
    """
    if len(priced.work.mesh.axes) <= 2:
        return 0.0
    return sum(link.seconds.size for link in priced.model.pair_costs) / _ENTRIES_PER_S


class Space:
    """A program, and everything that is needed to predict its costs on any mesh.

    original: the program as captured.
    tactics: the user's tactics, which every plan keeps.
    kept_tactics: these tactics and the search's rewrites, in the order in which they are
        applied: rewrites first.
    captured, graph: the program after all rewrites.
    op_prices: predicted seconds of its ops.
    """

    def __init__(
        self,
        original: Captured,
        machine: Machine,
        seed: int = 0,
        tactics: tuple[Tactic, ...] = (),
        rewrites: tuple[Tactic, ...] = (),
    ) -> None:
        user_rewrites = [t for t in tactics if t.rewrite is not None]
        rest = [t for t in tactics if t.rewrite is None]
        self.original = original
        self.tactics = tactics
        self.kept_tactics = (*user_rewrites, *rewrites, *rest)
        self.machine = machine
        self.seed = seed
        with paused_collector():
            self.captured = captured = rewritten(original, self.kept_tactics)
            self.graph = Graph(captured.program, captured.ties)
            self.op_prices = price_ops(captured.program, machine, machine.num_devices)
        self._undecided: ReducedGraph | None = None  # of a state without decisions

    def start(self, mesh: Mesh) -> Workspace:
        """The program on a mesh, with only the kept tactics applied.

        Raises `TacticError` if an input or op that a tactic names cannot be sharded or
        replicated as the tactic says, and `MeshError` if the mesh lacks an axis.
        """
        mesh.require_all(axes_of(self.kept_tactics))
        work = start_workspace(self.captured, mesh, self.graph, self.kept_tactics)
        for tactic in self.kept_tactics:
            before = len(work.refusals)
            tactic.apply(work)
            if tactic.kind is TacticKind.PIN and len(work.refusals) > before:
                raise TacticError(f"{tactic} cannot be kept: {work.refusals[before]}")
        return work

    def pricing(self, exposed: Mapping[Role, float] = EXPOSED) -> Pricing:
        """The inputs of cost predictions for this program.

        exposed: by role of a value (weight, gradient, ...), the share of its
            collectives' time that a step waits for; other roles have their default.
        """
        exposed = {**EXPOSED, **exposed}
        return Pricing(self.machine, self.op_prices, exposed, self.seed)

    @paused_collector()
    def price(
        self, mesh: Mesh, exposed: Mapping[Role, float] = EXPOSED
    ) -> PricedProgram:
        """The program on a mesh, with its integer program.

        The search may use all axes.
        """
        work = self.start(mesh)
        reduced = self.reduced_graph(work.state)
        return price(self.pricing(exposed), work, reduced, tuple(work.state.size))

    @paused_collector()
    def reprice(
        self, priced: PricedProgram, exposed: Mapping[Role, float]
    ) -> PricedProgram:
        """The integer program at other prices of collectives.

        This takes half the time of `price`.
        """
        prices = self.pricing(exposed).resharding(priced.work.state.mesh)
        model = priced.builder.build(prices)
        pricer = Pricer.of(model, priced.pricer.live_counts, self.seed)
        return replace(priced, model=model, pricer=pricer)

    def reduced_graph(self, state: State) -> ReducedGraph:
        """The graph after symmetry reduction, given a state's decisions.

        Without decisions it is the same on every mesh and is computed once.
        """
        if state.scattered or any(state.axes_of) or any(state.blocked):
            return reduce_by_symmetry(state)
        if self._undecided is None:
            self._undecided = reduce_by_symmetry(state)
        return self._undecided


@dataclass(frozen=True, slots=True)
class Pricing:
    """The inputs of cost predictions that do not depend on the mesh.

    exposed: by role of a value (weight, gradient, ...), the share of its collectives'
        time that a step waits for.
    seed: seed of the solver's random numbers.
    """

    machine: Machine
    op_prices: OpPrices
    exposed: Mapping[Role, float]
    seed: int = 0

    def resharding(self, mesh: Mesh) -> ReshardingPrices:
        """Predicted seconds of collectives and of resharding on a mesh."""
        placed = place_mesh(mesh, self.machine)
        compiler = compiler_of(self.machine)
        return ReshardingPrices(mesh, collective_lines(placed, compiler, self.exposed))


def price(
    pricing: Pricing, work: Workspace, reduced: ReducedGraph, free: Sequence[str]
) -> PricedProgram:
    """The integer program over all strategies that extend a workspace's decisions.

    reduced: the graph after symmetry reduction under these decisions.
    free: the sub-axes that are still to be decided.
    """
    state, op_prices = work.state, pricing.op_prices
    compute = ComputeTimes(pricing.machine.chip, state.mesh, op_prices)
    builder = IntegerProgramBuilder(state, reduced, Strategies(state, free), compute)
    model = builder.build(pricing.resharding(state.mesh))
    counts = live_counts(work.graph, reduced, op_prices, tuple(work.graph.ties))
    pricer = Pricer.of(model, counts, pricing.seed)
    return PricedProgram(work, model, pricer, builder)
