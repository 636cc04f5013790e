"""`autoplan`: the best plan for a step on a number of chips, without being told how."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from meshwright.app.partition import partition
from meshwright.app.plan import Plan, make_plan
from meshwright.errors import MeshwrightError, PlanError
from meshwright.machine import Machine, Mesh
from meshwright.partitioner.decide import axes_of, require_tactics
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.tactics import Tactic, TacticKind
from meshwright.planner.candidates.candidate import Search
from meshwright.planner.candidates.meshes import MOST_AXES, meshes_of
from meshwright.planner.candidates.proposal import OnProgress
from meshwright.planner.driver.request import Asked
from meshwright.planner.driver.rounds import search
from meshwright.planner.driver.search import Searcher
from meshwright.planner.solve.solver_process import SolverProcess
from meshwright.planner.solve.space import Space, Stated
from meshwright.predict.energy import Location

_FOR_SEARCH = 0.96
"""Share of the budget; the rest is for the plan itself, and for what ends a little late."""


def autoplan(  # noqa: PLR0913  the options of a search
    fn: Callable[..., Any],
    args: Sequence[Any],
    *,
    machine: Machine | str,
    chips: int | None = None,
    mesh: Mesh | Mapping[str, int] | None = None,
    most_axes: int = 2,
    tactics: Sequence[Tactic] = (),
    objective: str | Mapping[str, float] = "step_time",
    memory: float | None = None,
    budget_s: float = 15.0,
    place: Location | str | None = None,
    experts: bool = True,
    seed: int = 0,
    on_progress: OnProgress | None = None,
) -> Plan:
    """The best plan found for `fn(*args)` on so many chips of a machine.

    args: arrays or `ShapeDtypeStruct`s. machine: with its devices, or a name, of which
        `chips` are taken, or as many as `mesh` has devices. mesh: this one and no other;
        by default all shapes of up to `most_axes` axes, 1 to 3: data, model, more.
    tactics: decisions that stand. What they cut, or keep whole, is so in the plan and in
        the experts' strategies; the rest is searched, on meshes with the axes that they
        name.
    objective: what is to be small: "step_time", "memory", "cost", "energy" or "carbon",
        of which the last three go with the time on a given number of chips. Or weights
        of several, of which only the ratios count: with {"step_time": 1, "memory": 0.3}
        0.3 % less time is worth as much as 1 % less memory. What is made small is the
        product of each to the power of its weight.
    memory: bytes a device gives, by default what the chip lets a program have.
    budget_s: seconds to search; what is best by then is the answer, and so it is after
        an interrupt. experts: whether what people do by hand is looked at, too. seed: of
        what the solver draws; others may come to other plans as good.
    The plan's `search` says what was looked at, its `tactics` run it:
    `partition(fn, plan.mesh, plan.tactics)`. State that the step hands back is taken to
    be donated. Raises `PlanError` where nothing fits, and says what would, and where no
    mesh takes the tactics; of a given mesh the error is that of the tactic.
    """
    started = time.monotonic()
    asked = Asked(machine, chips, mesh, most_axes, objective, memory, budget_s, place)
    settled = asked.settled()
    _check_tactics(tactics)
    meshes = (
        _meshes(settled.machine, axes_of(tactics), most_axes)
        if settled.mesh is None
        else (settled.mesh,)
    )
    with SolverProcess() as beside:
        captured = partition(fn, meshes[0]).capture(*args)
        if not captured.program.ops:
            raise PlanError(
                "the step computes nothing that it gives back; nothing to plan"
            )
        space = Space(Stated(captured, tuple(tactics)), settled.machine, seed)
        searcher = Searcher(
            space,
            beside,
            _that_take(space, meshes),
            settled.limit,
            started + _FOR_SEARCH * budget_s,
            settled.aim,
            on_progress=on_progress or (lambda text: None),
        )
        searcher = search(searcher, experts)
    return _plan(searcher.found(started), searcher, settled.place)


def _check_tactics(tactics: Sequence[Tactic]) -> None:
    if not isinstance(tactics, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"tactics is {tactics!r}; wanted a list of tactics")
    require_tactics(tactics)
    for tactic in tactics:
        if tactic.kind is TacticKind.SEARCH:
            raise PlanError(
                f"{tactic} searches by itself; autoplan decides what the tactics leave "
                "open, so leave it out"
            )


def _meshes(machine: Machine, named: Sequence[str], most_axes: int) -> tuple[Mesh, ...]:
    if len(named) > most_axes:
        raise PlanError(
            f"the tactics name {len(named)} axes, {', '.join(named)}, and most_axes is "
            f"{most_axes}; allow more, at most {MOST_AXES}, or give the mesh"
        )
    found = meshes_of(machine, most_axes, named)
    if not found and machine.num_devices == 1:
        raise PlanError("on one device there is nothing to decide; ask for more chips")
    if not found:
        raise PlanError(
            f"{machine.num_devices} devices make no mesh with {', '.join(named)}, each "
            "above 1; give the mesh"
        )
    return found


def _that_take(space: Space, meshes: Sequence[Mesh]) -> Sequence[Mesh]:
    """Those on which what is given can be decided."""
    if not space.given or len(meshes) == 1:
        return meshes
    found: list[Mesh] = []
    why = ""
    for mesh in meshes:
        try:
            space.start(mesh)
        except MeshwrightError as error:
            why = why or f"on {mesh} {error}"
        else:
            found.append(mesh)
    if not found:
        raise PlanError(f"of {len(meshes)} meshes none takes these tactics; {why}")
    return found


def _plan(search: Search, searcher: Searcher, place: Location | None) -> Plan:
    best, space, last = search.candidates[0], searcher.space, searcher.trials.lowered
    is_same = _rewrites(best.tactics) == _rewrites(space.given)
    plan = make_plan(
        space.original.captured,
        best.mesh,
        best.tactics,
        Gather.SHARED,
        space.graph if is_same else None,
        last[1] if is_same and last is not None and last[0] is best else None,
    ).on(space.machine, place, donate_state=True)
    return replace(plan, search=search)


def _rewrites(tactics: Sequence[Tactic]) -> list[Tactic]:
    """The tactics that change the program, in order."""
    return [tactic for tactic in tactics if tactic.rewrite is not None]
