"""`Plan`: the sharding decisions about a program, with methods to use them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax

from meshwright.app.explain.show import show_plan
from meshwright.app.interop.shardings import argument_shardings, result_shardings
from meshwright.app.output.files import read_plan_file
from meshwright.app.planned_step import PlannedStep
from meshwright.app.record.json_form import (
    fields_from_json,
    record_to_json,
    repeating_tactics,
)
from meshwright.app.record.plan_record import PlanRecord, estimate_of
from meshwright.errors import MeshError, PlanError
from meshwright.machine import Machine, Mesh, load_machine
from meshwright.partitioner.tactics import ByLevels, by_levels
from meshwright.predict.energy import Location, find_location
from meshwright.predict.estimate import estimate
from meshwright.predict.figures import make_figures
from meshwright.program.capture.arguments import Names, Numbers
from meshwright.registry import feature

if TYPE_CHECKING:
    from meshwright.app.confirm.confirmation import Confirmation
    from meshwright.registry import ExactOffsets


@dataclasses.dataclass(frozen=True)
class Plan(PlanRecord, PlannedStep):
    """A plan: all sharding decisions about a program, the figures that follow, and methods.

    The fields are those of `PlanRecord`. The methods read the fields, or pass the record to
    other folders of `app`.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Raise `PlanError`: a plan has no function; `mw.partition(fn, plan)` runs it."""
        name = self.name or "fn"
        raise PlanError(
            "a plan holds decisions and does not run; "
            f"step = mw.partition({name}, plan) is the function that runs it, with the "
            "same arguments"
        )

    # -- on a machine ------------------------------------------------------------------

    def on(
        self,
        machine: Machine | str | Path,
        place: Location | str | None = None,
        donate_state: bool | None = None,
    ) -> Plan:
        """This plan with the time, memory, energy and cost of a step on a machine.

        machine: a machine with as many devices as the mesh, or the name of a preset or of a
            TOML file, of which that many devices are taken; see `meshwright.machine`.
        place: location of the machine, which decides the carbon per kWh; see
            `meshwright.predict.energy.LOCATIONS`.
        donate_state: treat each input whose updated value the step returns as donated, or
            only arguments in `donate_argnums`; by default as in this plan's `donated`.
        Raises `MachineError` if machine and mesh do not match, and `PlanError` for a
        plan that was read from JSON, which has no program.
        """
        if self.decided is None:
            raise PlanError("a plan read from JSON has no program to simulate")
        where = place if isinstance(place, Location | None) else find_location(place)
        if not isinstance(machine, Machine):
            machine = load_machine(machine, self.mesh.num_devices)
        captured = self.decided.captured
        if donate_state is None:
            state = {captured.paths[i] for i in captured.ties.values()}
            donate_state = state <= {*self.donated}
        simulated = estimate(self.decided, machine, donate_state)
        figures = make_figures(self.decided, simulated, where)
        donated = tuple(captured.paths[i] for i in simulated.donated)
        return dataclasses.replace(
            self, figures=figures, estimate=simulated, donated=donated
        )

    def offsets(self, seconds: float = 10.0, seed: int = 0) -> ExactOffsets:
        """Memory offsets of one device's buffers, searched for `seconds` seconds.

        If a step exceeds the memory with the compiler's own buffer assignment, the result
        says whether a better assignment fits, and the bytes that it saves. `to_csv` of the
        result serves runtimes that take offsets. Raises `PlanError` for a plan without an
        estimate (see `on`).
        """
        simulated = estimate_of(self)
        if self.decided is None:
            raise PlanError(
                "a plan read from JSON has no program whose buffers to place"
            )
        return feature("exact_offsets")(self.decided, simulated, seconds, seed)

    def placed_mesh(self, devices: Sequence[Any]) -> Mesh:
        """The plan's mesh over these devices, in the order that the prediction assumed.

        devices: as many as the mesh has, in row-major order over the machine's grid, with
            the outermost dim first: nodes one after another, a torus row by row.
        Partition over this mesh again to run in this order. Raises `PlanError` for a plan
        without an estimate (see `on`), and `MeshError` for another number of devices.
        """
        order = estimate_of(self).placement.device_order()
        if len(devices) != len(order):
            raise MeshError(f"{len(devices)} devices do not fill mesh {self.mesh}")
        return self.mesh.over([devices[place] for place in order])

    def proposed_levels(self) -> tuple[ByLevels, ...]:
        """Tactics that split all-reduces by the machine's levels (in a node, across nodes).

        A tactic is proposed for each axis for which the split saves time, judged by
        predicted times of reduction programs (`mw.reductions`). Add the tactics to the
        plan's tactics, and compare the step times. Raises `PlanError` for a plan without an
        estimate (see `on`).
        """
        levels = feature("levels_that_gain")(estimate_of(self), self.mesh.spatial)
        return tuple(by_levels(axis, sizes) for axis, sizes in levels.items())

    def confirm(
        self,
        machine: Machine | str,
        *,
        full: bool = False,
        timeout_s: float = 600.0,
        folder: str | PathLike[str] | None = None,
        donate_state: bool | None = None,
    ) -> Confirmation:
        """Predicted figures of a step next to those of the machine's real compiler.

        machine: "tpu" or "gpu" for the machine that was given to `on`; otherwise a machine,
            or a name as for `mw.machine`. The compilers are installed by the extras
            `meshwright[tpu]` and `meshwright[gpu]`.
        full: let the TPU compiler generate code, too. It takes a minute or more and
            adds the compiler's estimate of the compute time.
        folder: an empty or new folder in which the compiler's own files are kept.
        donate_state: as in `on`; with "tpu" and "gpu" the value given to `on` is used.
        Raises the errors of `on`, and `CompilerError` if the machine has no such
        compiler, or if the compiler is not installed, fails or exceeds the timeout.
        """
        from meshwright.app.confirm import confirmation  # imported late: rarely used

        if self.decided is None:
            raise PlanError("a plan read from JSON has no program to compile")
        now = None if self.estimate is None else self.estimate.machine
        target = confirmation.machine_to_place_on(machine, now, self.mesh.num_devices)
        placed = self if target is None else self.on(target, donate_state=donate_state)
        kept = None if folder is None else Path(folder)
        return confirmation.confirm_placed(placed, full, timeout_s, kept)

    def sections(self, tips: Any) -> Sequence[str]:
        """HTML sections: the timeline, collectives, the roofline and shardings."""
        from meshwright.app.report.page import plan_sections  # rarely used

        return plan_sections(self, tips)

    def trace_events(self, first: int) -> list[dict[str, Any]]:
        """Trace events of the simulated step, as one process with number `first`."""
        from meshwright.app.report.trace_events import events_of  # rarely used

        return events_of(self, first)

    # -- for other programs --------------------------------------------------------------

    def annotate(
        self,
        fn: Callable[..., Any],
        mesh: jax.sharding.Mesh | None = None,
        *,
        static_argnums: Numbers = None,
        static_argnames: Names = None,
    ) -> Callable[..., Any]:
        """The function `fn` with this plan's shardings as constraints, for `jax.jit`.

        `jax.jit(plan.annotate(fn))` computes the same as `fn`. All values, also inside of
        loops and checkpoints, get a `jax.lax.with_sharding_constraint`, so that XLA's
        partitioner (Shardy or GSPMD) inserts the collectives. Only partial sums get none,
        since a constraint cannot express them.
        fn: the function that was planned.
        mesh: a JAX mesh with the axes of the plan; by default that of `jax.set_mesh`, or
            else one over the plan's devices.
        static_*: as in `jax.jit`; not needed if `fn` is a jitted function.
        A call raises `TacticError` if the function is not the one that was planned, and
        `MeshError` if the mesh has other axes or axes that are not of type `Auto`.
        Differentiating the result raises `CaptureError`: annotate the whole train step
        instead.
        """
        from meshwright.app.interop.annotate import annotated  # rarely used

        tactics = repeating_tactics(self) or self.tactics
        return annotated(self, fn, tactics, mesh, (static_argnums, static_argnames))

    def logical_axis_rules(
        self, logical_axes: Any, path: str = ""
    ) -> list[tuple[str, str | tuple[str, ...] | None]]:
        """Logical axis rules for Flax or MaxText that give this plan's shardings.

        A rule is a pair such as ("embed", "model"): a logical name of a dim, and its mesh
        axes.
        logical_axes, path: as for `mw.from_logical_axes`, which reads such rules.
        Raises `PlanError`, naming the arrays, if one name would need two shardings.
        """
        from meshwright.app.interop.logical_axes import rules_of_plan  # rarely used

        return rules_of_plan(self.inputs, logical_axes, path)

    # -- as shardings, JSON and text -----------------------------------------------------

    @property
    def in_shardings(self) -> Any:
        """Shardings for `jax.jit(fn, in_shardings=...)`: a tuple, one tree per argument.

        This needs the mesh's devices. Keyword arguments are left out, as `jax.jit`
        requires. A plan read from JSON gives a flat tuple in the order of `inputs`.
        """
        return argument_shardings(self)

    @property
    def out_shardings(self) -> Any:
        """Shardings for `jax.jit(fn, out_shardings=...)`, in the tree of the result."""
        return result_shardings(self)

    def to_json(self) -> str:
        """JSON text of the plan, without the program; `from_json` is the inverse."""
        return record_to_json(self, self.candidate_rows)

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that `to_json` wrote; `PlanError` for any other text."""
        return Plan(**fields_from_json(text))

    @staticmethod
    def load(path: str | PathLike[str]) -> Plan:
        """The plan that `save` wrote; `mw.partition(fn, plan)` runs it on any host."""
        return Plan.from_json(read_plan_file(path))

    def __reduce__(self) -> tuple[Any, ...]:
        return Plan.from_json, (self.to_json(),)

    def __copy__(self) -> Plan:
        return self  # nothing in it changes, and `__reduce__` drops the program

    def __deepcopy__(self, memo: object) -> Plan:
        return self

    def describe(self, full: bool = False) -> str:
        """The plan as a page of text; `print(plan)` shows it.

        full: give each layer its own line, even if several layers are equal.
        """
        return show_plan(self, full)

    def _repr_html_(self) -> str:
        from meshwright.app.explain.plan_html import plan_html  # for notebooks only

        return plan_html(self)
