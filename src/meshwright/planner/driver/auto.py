"""`auto`: a tactic that decides what the tactics before it have left open."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.errors import TacticError
from meshwright.machine import Machine, load_machine
from meshwright.partitioner.tactics import TacticKind, Workspace
from meshwright.planner.prices.symmetry import reduce_by_symmetry
from meshwright.planner.prices.uniform_partition import price_ops
from meshwright.planner.prices.value_roles import EXPOSED
from meshwright.planner.solve.memory_limit import SolveBudget, find_optimum
from meshwright.planner.solve.space import Pricing, price

_ROUNDS = 200
"""Of the solver; where there is time for them, the same is found each time."""


@dataclass(frozen=True, slots=True)
class Auto:
    """Cut whatever pays along some axes, on top of the decisions before.

    machine: on which it has to pay; of a name, as many devices as the mesh has. memory:
    bytes of a device, at most; by default what the chip lets a program have.
    """

    axes: tuple[str, ...]
    machine: Machine | str
    memory: float | None = None
    budget_s: float = 10.0
    seed: int = 0
    kind = TacticKind.SEARCH
    rewrite = None

    def apply(self, work: Workspace) -> None:
        """Solve the integer program over what is open, and write what it decides."""
        machine = self.machine
        if not isinstance(machine, Machine):
            machine = load_machine(machine, work.mesh.num_devices)
        units = [
            u for axis in self.axes for u in work.sub_axes[work.mesh.require(axis)]
        ]
        stores = price_ops(work.graph.program, machine, work.mesh.num_devices)
        pricing = Pricing(machine, stores, EXPOSED, self.seed)
        priced = price(pricing, work, reduce_by_symmetry(work.state), units)
        usable = machine.chip.usable_bytes
        limit = usable if self.memory is None else min(self.memory, usable)
        until = time.monotonic() + self.budget_s
        budget = SolveBudget(_ROUNDS, time.monotonic, until)
        optimum = find_optimum(priced.pricer, limit, budget)
        if optimum.bytes > limit:
            raise TacticError(
                f"{self} finds nothing that fits into {limit / 2**30:.1f} GiB a device"
            )
        priced.tactic(optimum, str(self)).apply(work)

    def __str__(self) -> str:
        name = self.machine if isinstance(self.machine, str) else self.machine.name
        return f"auto({list(self.axes)!r}, machine={name!r})"


def auto(
    axes: str | Sequence[str],
    *,
    machine: Machine | str,
    memory: float | None = None,
    budget_s: float = 10.0,
    seed: int = 0,
) -> Auto:
    """A tactic that decides for some axes, among others that a person chose.

    In `[data_parallel("data"), auto(["model"], machine="h100")]` everything that the
    tactics before it cut stays as it is; what they left open is chosen by an integer
    program, as `autoplan` does for a whole mesh. See `Auto` for the options.
    Raises `TacticError` where the axes are none, or, when it is applied, nothing fits.
    """
    chosen = (axes,) if isinstance(axes, str) else tuple(axes)
    if not chosen:
        raise TacticError("auto wants at least one axis")
    if not budget_s > 0:
        raise TacticError(f"auto: budget_s is {budget_s}; wanted seconds above 0")
    return Auto(chosen, machine, memory, budget_s, seed)
