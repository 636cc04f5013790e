"""The options of a search for a plan, as the user gives them and as checked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from meshwright.errors import PlanError
from meshwright.machine import Machine, Mesh, load_machine
from meshwright.machine.memory_size import memory_bytes
from meshwright.partitioner.decide import require_tactics
from meshwright.partitioner.tactics import Tactic, TacticKind
from meshwright.planner.candidates.meshes import MOST_AXES
from meshwright.planner.candidates.objective import Objective
from meshwright.planner.candidates.proposal import OnProgress
from meshwright.planner.candidates.search_options import wrong_option
from meshwright.planner.driver.task import ignore_progress
from meshwright.predict.energy import Location, find_location
from meshwright.program.capture.arguments import Numbers
from meshwright.program.capture.mesh import as_mesh


class ResolvedRequest(NamedTuple):
    """The checked options of a search, with the names of machines and places looked up.

    limit: bytes of each device's memory that a plan may use.
    place: location of the machine, for its carbon emissions.
    """

    objective: Objective
    machine: Machine
    mesh: Mesh | None
    limit: float
    place: Location | None


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The options of `autoplan`, as the user gives them.

    machine: a `Machine` or the name of a preset.
    chips: number of its chips to use; by default as many as `mesh` has devices.
    mesh: the only mesh to try; by default all meshes of 1 to `most_axes` axes.
    most_axes: largest number of axes of a mesh: 1, 2 or 3.
    tactics: decisions that every plan keeps; the search decides what they leave open.
    objective: "step_time", "memory", "cost", "energy" or "carbon" (the last three are
        proportional to the step time), or weights: with {"step_time": 1, "memory": 0.3}
        0.3 % less time is worth as much as 1 % less memory.
    memory: limit per device: "80GiB", "512 MB", or bytes; by default all that the chip
        offers.
    budget_s: search time in seconds, counted in units of work so that the result does not
        depend on how fast or busy this computer is. When it is used up, or on Ctrl-C, the
        best plan so far is returned. After 8 times as many real seconds plus 2 minutes, a
        search is cut short; `search.notes` then says so.
    place: location of the machine, which decides the carbon per kWh.
    experts: try the strategies that experts use by hand, too.
    search: "program" for an integer program, "tree" for a Monte Carlo tree search over
        cuts of inputs, whose plans are lists of `shard` tactics, or "experts" to only
        simulate the strategies that experts use by hand.
    seed: random seed of the search.
    confirm: compile the plan with the machine's real compiler, from `meshwright[tpu]` or
        `meshwright[gpu]`. If it fails, the next best plan is tried.
    on_progress: a function that is called with lines of text.
    donate_argnums: positions of the arguments whose memory the step takes for its results;
        () for none. By default each input whose next value the step returns is donated.
    loops: iterations of loops whose number depends on values, by source line, such as
        {"model.py:42": 64}; see `mw.iterations`. Others count as 100 iterations, so that a
        search prefers work before a loop to work in it.
    """

    machine: Machine | str
    chips: int | None = None
    mesh: Mesh | Mapping[str, int] | None = None
    most_axes: int = 2
    objective: str | Mapping[str, float] = "step_time"
    memory: float | str | None = None
    budget_s: float = 15.0
    place: Location | str | None = None
    tactics: Sequence[Tactic] = ()
    experts: bool = True
    search: str = "program"
    seed: int = 0
    on_progress: OnProgress = ignore_progress
    confirm: bool = False
    loops: Mapping[str, int] | None = None
    donate_argnums: Numbers = None

    @property
    def donates_state(self) -> bool:
        """Whether the step donates each input whose next value it returns."""
        return self.donate_argnums is None

    def resolve(self) -> ResolvedRequest:
        """Check the options and look up names.

        A `PlanError` says which option is wrong and what is allowed.
        """
        wrong = wrong_option(self.search, self.budget_s, self.seed, self.on_progress)
        if wrong is not None:
            raise PlanError(wrong)
        objective = Objective.of(self.objective)
        mesh = None if self.mesh is None else as_mesh(self.mesh)
        if mesh is not None:
            mesh.require_spatial("a search chooses among axes of devices only")
        machine = self._machine(mesh)
        if self.most_axes is True or self.most_axes not in range(1, MOST_AXES + 1):
            raise PlanError(f"most_axes is {self.most_axes!r}; wanted 1, 2 or 3")
        if not isinstance(self.experts, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"experts is {self.experts!r}; wanted True or False")
        limit = machine.chip.usable_bytes
        if self.memory is not None:
            limit = min(limit, memory_bytes(self.memory))
        place = self.place
        if isinstance(place, str):
            place = find_location(place)
        self._check_tactics()
        return ResolvedRequest(
            objective=objective, machine=machine, mesh=mesh, limit=limit, place=place
        )

    def _machine(self, mesh: Mesh | None) -> Machine:
        machine, chips = self.machine, self.chips
        if not isinstance(machine, Machine):
            if chips is None and mesh is None:
                load_machine(machine, None)  # an unknown name is an error of its own
                raise PlanError(
                    f"the number of chips of {machine} is missing; add chips=32, say"
                )
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

    def _check_tactics(self) -> None:
        tactics = self.tactics
        if not isinstance(tactics, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise PlanError(f"tactics is {tactics!r}; wanted a list of tactics")
        require_tactics(tactics)
        for tactic in tactics:
            if tactic.kind is TacticKind.SEARCH:
                raise PlanError(
                    f"{tactic} runs a search of its own; leave it out, since autoplan "
                    "decides all that the other tactics leave open"
                )
