"""One captured program, ready to be priced on any mesh of a machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from meshwright.autoplan.chosen import Chosen, choose
from meshwright.autoplan.compute import Compute, Stores, stores_of
from meshwright.autoplan.fold import fold
from meshwright.autoplan.lives import lives_of
from meshwright.autoplan.model import Model, ModelBuilder
from meshwright.autoplan.moves import Moves, lines_on
from meshwright.autoplan.optimum import Optimum, Pricer, find_optimum
from meshwright.autoplan.strategy import Strategies
from meshwright.capture import Captured
from meshwright.machine import Machine, Mesh
from meshwright.machine.placement import place_mesh
from meshwright.plan.decide import start_workspace
from meshwright.propagate import Graph
from meshwright.simulate.rules import RULES
from meshwright.tactics import Workspace

_EXPOSED = 0.5
"""Share of a collective that can run beside computation which a step waits for, as the
integer program counts; the simulation then says how much it is."""

_HIDDEN = ("all_gather", "permute", "reduce_scatter")


@dataclass(frozen=True, slots=True)
class Priced:
    """The program with prices on one mesh."""

    work: Workspace
    model: Model
    pricer: Pricer
    compute: Compute

    def best(
        self, limit: float | None, clock: Callable[[], float], until: float
    ) -> Optimum | None:
        """The cheapest choices within a limit of bytes."""
        return find_optimum(self.pricer, limit, clock, until)

    def tactic(self, optimum: Optimum, name: str) -> Chosen:
        """What choices decide."""
        return choose(self.model, optimum.choices, self.work.state, name)


class Space:
    """Everything about a program that does not depend on the mesh."""

    def __init__(self, captured: Captured, machine: Machine, seed: int = 0) -> None:
        self.captured = captured
        self.machine = machine
        self.seed = seed
        self.graph = Graph(captured.program, captured.ties)
        self._stores: Stores = stores_of(
            captured.program, machine.chip, machine.compiler
        )

    def price(
        self,
        mesh: Mesh,
        axes: Sequence[str] | None = None,
        work: Workspace | None = None,
    ) -> Priced:
        """The program on a mesh.

        axes: those that may be decided, all by default. work: with decisions that stand,
        none but the user's own by default.
        """
        work = work or start_workspace(self.captured, mesh, self.graph)
        chosen = mesh.axes if axes is None else tuple(axes)
        free = [unit for axis in chosen for unit in work.units[axis]]
        return price(work, self.machine, free, self._stores, self.seed)


def price(
    work: Workspace,
    machine: Machine,
    free: Sequence[str],
    stores: Stores,
    seed: int = 0,
) -> Priced:
    """What all choices cost, on top of the decisions of a workspace."""
    state = work.state
    folded = fold(state)
    strategies = Strategies(state, free)
    compute = Compute(machine.chip, state.mesh, stores)
    placement = place_mesh(state.mesh, machine)
    moves = Moves(state.mesh, lines_on(placement, exposed_of(machine)))
    model = ModelBuilder(state, folded, strategies, compute).build(moves)
    lives = lives_of(work.graph, folded, stores, tuple(work.graph.ties))
    return Priced(work, model, Pricer(model, lives, seed), compute)


def exposed_of(machine: Machine) -> Mapping[str, float]:
    """By kind of collective the share that a step is taken to wait for."""
    overlaps = RULES[machine.compiler].overlaps
    return {kind: _EXPOSED for kind in _HIDDEN if kind in overlaps}
