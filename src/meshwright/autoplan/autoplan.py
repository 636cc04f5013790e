"""`autoplan`: the best plan for a step on a number of chips, without being told how."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshwright.autoplan.beside import Beside
from meshwright.autoplan.meshes import meshes_of
from meshwright.autoplan.rounds import search
from meshwright.autoplan.search import OnProgress, Searcher
from meshwright.autoplan.space import Space
from meshwright.cost.energy import Place, find_place
from meshwright.errors import PlanError
from meshwright.lower import Gather
from meshwright.machine import Machine, Mesh, load_machine
from meshwright.plan.candidates import Candidate, Search
from meshwright.plan.partition import as_mesh, partition
from meshwright.plan.plan import Plan, make_plan

OBJECTIVES: Mapping[str, Callable[[Candidate], float]] = {
    "step_time": lambda c: c.step_time_s,
    "memory": lambda c: float(c.peak_memory_bytes),
}
"""What can be made small. On a given number of chips dollars, joules and grams of CO2 are
those of the time, so that "cost" and "carbon" order plans as it does."""

_ALIASES = {"cost": "step_time", "energy": "step_time", "carbon": "step_time"}


def autoplan(  # noqa: PLR0913  the options of a search
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    machine: Machine | str,
    chips: int | None = None,
    mesh: Mesh | Mapping[str, int] | None = None,
    objective: str = "step_time",
    memory: float | None = None,
    budget_s: float = 30.0,
    place: Place | str | None = None,
    experts: bool = True,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Plan:
    """The best plan found for `fn(*args)` on so many chips of a machine.

    args: arrays or `ShapeDtypeStruct`s. machine: with its devices, or a name, of which
        `chips` are taken, or as many as `mesh` has devices. mesh: this one and no other;
        by default all shapes of one and two axes.
    objective: "step_time", or "memory"; "cost", "energy" and "carbon" of a given number
        of chips are those of the time. memory: bytes a device gives, by default what the
        chip lets a program have.
    budget_s: seconds to search; what is best by then is the answer, and so it is after
        an interrupt. experts: whether what people do by hand is looked at, too.
    The plan's `search` says what was looked at, its `tactics` run it:
    `partition(fn, plan.mesh, plan.tactics)`. State that the step hands back is taken to
    be donated. Raises `PlanError` where nothing fits, and says what would.
    """
    started = time.monotonic()
    own = None if mesh is None else as_mesh(mesh)
    found_machine = _machine(machine, chips, own)
    meshes = meshes_of(found_machine) if own is None else (own,)
    if objective not in {*OBJECTIVES, *_ALIASES}:
        allowed = ", ".join((*OBJECTIVES, *_ALIASES))
        raise PlanError(f"objective is {objective!r}; wanted one of {allowed}")
    if not budget_s > 0:
        raise PlanError(f"budget_s is {budget_s}; wanted seconds above 0")
    if not meshes:
        raise PlanError("on one device there is nothing to decide; ask for more chips")
    usable = found_machine.chip.usable_bytes
    with Beside() as beside:
        captured = partition(fn, meshes[0]).capture(*args)
        searcher = Searcher(
            Space(captured, found_machine, seed),
            beside,
            meshes,
            usable if memory is None else min(memory, usable),
            started + budget_s,
            OBJECTIVES[_ALIASES.get(objective, objective)],
            on_progress=on_progress or (lambda text: None),
        )
        searcher = search(searcher, experts)
    return _plan(searcher.found(started), searcher, place)


def _machine(machine: Machine | str, chips: int | None, mesh: Mesh | None) -> Machine:
    if not isinstance(machine, Machine):
        if chips is None and mesh is None:
            raise PlanError(f"how many chips of {machine}? say chips=32, or so")
        if chips is not None:
            machine = load_machine(machine, None, chips)
        else:
            machine = load_machine(machine, mesh and mesh.num_devices)
    if mesh is not None and mesh.num_devices != machine.num_devices:
        raise PlanError(
            f"mesh {mesh} has {mesh.num_devices} devices, {machine.name} has "
            f"{machine.num_devices}"
        )
    return machine


def _plan(search: Search, searcher: Searcher, place: Place | str | None) -> Plan:
    best = search.candidates[0]
    plan = make_plan(
        searcher.space.original, best.mesh, best.tactics, Gather.SHARED
    ).on(
        searcher.space.machine,
        find_place(place) if isinstance(place, str) else place,
        donate_state=True,
    )
    return replace(plan, search=search)
