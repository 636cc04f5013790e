"""One captured program, ready to be priced on any mesh of a machine."""

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
from meshwright.planner.integer_program.chosen_strategies import (
    ChosenStrategies,
    chosen_strategies,
)
from meshwright.planner.integer_program.integer_program import IntegerProgram
from meshwright.planner.integer_program.live_counts import live_counts
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
from meshwright.program.records.paused_collector import paused_collector


@dataclass(frozen=True, slots=True)
class Priced:
    """The program with prices on one mesh."""

    work: Workspace
    model: IntegerProgram
    pricer: Pricer
    compute: ComputeTimes
    builder: IntegerProgramBuilder

    def tactic(self, optimum: Optimum, name: str) -> ChosenStrategies:
        """What choices decide."""
        return chosen_strategies(self.model, optimum.choices, self.work.state, name)


@dataclass(frozen=True, slots=True)
class PartialPlan:
    """A captured program and the user's tactics, which every plan of a search keeps."""

    captured: Captured
    tactics: tuple[Tactic, ...] = ()


_ENTRIES_PER_S = 2e5
"""Of tables with hundreds of rows, that the solver takes in before it starts."""


def solving_s(priced: Priced) -> float:
    """Seconds that a solution takes at least, whatever the solver is allowed.

    Small with up to two axes; with three there are hundreds of choices for each op.
    """
    if len(priced.work.mesh.axes) <= 2:
        return 0.0
    return sum(link.seconds.size for link in priced.model.pair_costs) / _ENTRIES_PER_S


class Space:
    """Everything about a program that does not depend on the mesh.

    original: the program as it was. given: all tactics that stand, those first that
    change the program; `captured` is what they make of it.
    """

    def __init__(
        self,
        original: Captured | PartialPlan,
        machine: Machine,
        seed: int = 0,
        rewrites: tuple[Tactic, ...] = (),
    ) -> None:
        partial = (
            original if isinstance(original, PartialPlan) else PartialPlan(original)
        )
        own = [t for t in partial.tactics if t.rewrite is not None]
        rest = [t for t in partial.tactics if t.rewrite is None]
        self.original = partial
        self.given = (*own, *rewrites, *rest)
        self.machine = machine
        self.seed = seed
        with paused_collector():
            self.captured = captured = rewritten(partial.captured, self.given)
            self.graph = Graph(captured.program, captured.ties)
            self.op_prices = price_ops(captured.program, machine, machine.num_devices)
        self._blank: ReducedGraph | None = None  # of a state that says nothing yet

    def start(self, mesh: Mesh) -> Workspace:
        """The program on a mesh, with what is given decided and nothing else.

        Raises `TacticError` where the mesh does not let a named input, value or op be
        cut, or kept whole, as a tactic says, `MeshError` where it lacks an axis.
        """
        mesh.require_all(axes_of(self.given))
        work = start_workspace(self.captured, mesh, self.graph)
        for tactic in self.given:
            known = len(work.refusals)
            tactic.apply(work)
            if tactic.kind is TacticKind.PIN and len(work.refusals) > known:
                raise TacticError(f"{tactic} cannot stand: {work.refusals[known]}")
        return work

    @paused_collector()
    def price(
        self,
        mesh: Mesh,
        axes: Sequence[str] | None = None,
        work: Workspace | None = None,
        exposed: Mapping[Role, float] | None = None,
    ) -> Priced:
        """The program on a mesh.

        axes: those that may be decided, all by default. work: with decisions that stand,
        those of `start` by default. exposed: by role of a value the share of its
        collectives that a step waits for, where that is known.
        """
        work = work or self.start(mesh)
        chosen = mesh.axes if axes is None else tuple(axes)
        free = [unit for axis in chosen for unit in work.sub_axes[axis]]
        exposed = {**EXPOSED, **(exposed or {})}
        return price(
            Pricing(self.machine, self.op_prices, exposed, self.seed),
            work,
            self.reduced_graph(work.state),
            free,
        )

    @paused_collector()
    def price_again(self, priced: Priced, exposed: Mapping[Role, float]) -> Priced:
        """The same choices at other prices of collectives, in half the time."""
        shares = {**EXPOSED, **exposed}
        moves = _moves(self.machine, priced.work.state.mesh, shares)
        model = priced.builder.build(moves)
        pricer = Pricer.of(model, priced.pricer.live_counts, self.seed)
        return replace(priced, model=model, pricer=pricer)

    def reduced_graph(self, state: State) -> ReducedGraph:
        """The groups under a state; where nothing is decided, those of all meshes."""
        if state.scattered or any(state.axes_of) or any(state.blocked):
            return reduce_by_symmetry(state)
        if self._blank is None:
            self._blank = reduce_by_symmetry(state)
        return self._blank


@dataclass(frozen=True, slots=True)
class Pricing:
    """What prices are made of, whatever the mesh; exposed: as in `Space.price`."""

    machine: Machine
    op_prices: OpPrices
    exposed: Mapping[Role, float]
    seed: int = 0


def price(
    pricing: Pricing, work: Workspace, folded: ReducedGraph, free: Sequence[str]
) -> Priced:
    """What all choices cost, on top of the decisions of a workspace."""
    state, machine, stores = work.state, pricing.machine, pricing.op_prices
    strategies = Strategies(state, free)
    compute = ComputeTimes(machine.chip, state.mesh, stores)
    builder = IntegerProgramBuilder(state, folded, strategies, compute)
    model = builder.build(_moves(machine, state.mesh, pricing.exposed))
    lives = live_counts(work.graph, folded, stores, tuple(work.graph.ties))
    pricer = Pricer.of(model, lives, pricing.seed)
    return Priced(work, model, pricer, compute, builder)


def _moves(
    machine: Machine, mesh: Mesh, exposed: Mapping[Role, float]
) -> ReshardingPrices:
    placed, beside = place_mesh(mesh, machine), compiler_of(machine).async_collectives
    return ReshardingPrices(mesh, collective_lines(placed, beside, exposed))
