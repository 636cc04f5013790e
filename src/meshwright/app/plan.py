"""The plan: everything that was decided about a program, as plain data."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from jax.sharding import PartitionSpec

from meshwright.app.explain.explain import (
    Collective,
    Leaf,
    Seen,
    Step,
    describe_collectives,
    describe_leaves,
    describe_step,
    whole_ops,
)
from meshwright.app.explain.show import show_plan
from meshwright.errors import PlanError
from meshwright.machine import Machine, Mesh, load_machine
from meshwright.partitioner.decide import Decided, apply_tactics
from meshwright.partitioner.lower import Gather, Lowered, count_collectives, lower
from meshwright.partitioner.propagate.sub_axes import SUB_AXIS
from meshwright.partitioner.tactics import Tactic, Workspace
from meshwright.predict.compilers.xla.workarounds import XLA_WORKAROUNDS
from meshwright.predict.energy import Place, find_place
from meshwright.predict.estimate import Estimate, estimate
from meshwright.predict.figures import Figures, make_figures, read_figures
from meshwright.program.capture import Captured
from meshwright.program.ir import Sharding
from meshwright.run.local import jax_mesh, named_shardings

if TYPE_CHECKING:
    from meshwright.app.confirm.confirmation import Confirmation
    from meshwright.partitioner.propagate import Graph
    from meshwright.planner.candidates.candidate import Search

FORMAT = 2
"""Version of the JSON form; a plan of another version is refused."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """A program's shardings and collectives.

    counts: executions per step by kind of collective, loops multiplied.
    collectives: each collective op of the device program, in order.
    inputs, outputs: per leaf, how it is stored. steps: tactic by tactic.
    whole: ops that stay whole for want of a rule, with the reason.
    figures: what a step takes on a machine; None until `on` named one.
    search: how `autoplan` found it; None for a plan made by hand.
    """

    mesh: Mesh
    gather: Gather
    counts: Mapping[str, int]
    collectives: tuple[Collective, ...]
    inputs: tuple[Leaf, ...]
    outputs: tuple[Leaf, ...]
    steps: tuple[Step, ...]
    whole: tuple[str, ...]
    figures: Figures | None = None
    decided: Decided | None = dataclasses.field(default=None, compare=False, repr=False)
    estimate: Estimate | None = dataclasses.field(
        default=None, compare=False, repr=False
    )
    search: Search | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def tactics(self) -> tuple[Tactic, ...]:
        """What led here; `partition(fn, plan.mesh, plan.tactics)` runs it."""
        if self.decided is None:
            raise PlanError("a plan read from JSON has its tactics as text only")
        return self.decided.tactics

    # -- on a machine ------------------------------------------------------------------

    def on(
        self,
        machine: Machine | str | Path,
        place: Place | str | None = None,
        donate_state: bool = False,
    ) -> Plan:
        """The same plan with the time, memory, energy and money of a step on a machine.

        machine: with as many devices as the mesh; see `meshwright.machine`. Of a preset's
            name or a TOML file, as many as that.
        place: where it stands, for carbon; see `meshwright.predict.energy.PLACES`.
        donate_state: as if the caller gave up the memory of what the step hands back in
            its next form; else only of what `donate_argnums` names.
        Raises `MachineError` where machine and mesh do not match, `PlanError` for a plan
        that was read from JSON, which has no program.
        """
        if self.decided is None:
            raise PlanError("a plan read from JSON has no program to simulate")
        where = place if isinstance(place, Place | None) else find_place(place)
        if not isinstance(machine, Machine):
            machine = load_machine(machine, self.mesh.num_devices)
        found = estimate(self.decided, machine, donate_state)
        figures = make_figures(self.decided, found, where)
        return dataclasses.replace(self, figures=figures, estimate=found)

    def _figures(self) -> Figures:
        if self.figures is None:
            raise PlanError(
                'this plan names no machine; plan.on("tpu-v5p") gives one that does'
            )
        return self.figures

    @property
    def step_time_s(self) -> float:
        """Seconds of a step, simulated."""
        return self._figures().step_time_s

    @property
    def mfu(self) -> float:
        """Share of the machine's 16-bit peak that the model's operations reach."""
        return self._figures().mfu

    @property
    def peak_memory_bytes(self) -> int:
        """The most that is alive at once on one device."""
        return self._figures().peak_memory_bytes

    @property
    def fits(self) -> bool:
        """True where that is no more than a device gives to programs."""
        return self._figures().fits

    @property
    def breakdown(self) -> Mapping[str, float]:
        """Seconds of a step by what fills them."""
        return self._figures().breakdown

    @property
    def energy_j(self) -> float | None:
        """Joules of a step, all devices and the data centre's overhead included."""
        return self._figures().energy_j

    @property
    def cost_usd(self) -> float | None:
        """Dollars of a step at list price."""
        return self._figures().cost_usd

    @property
    def co2e_g(self) -> float | None:
        """Grams of CO2 equivalent of a step; None until `on` named a place."""
        return self._figures().co2e_g

    def confirm(
        self,
        machine: Machine | str,
        *,
        full: bool = False,
        timeout_s: float = 600.0,
        folder: str | PathLike[str] | None = None,
        donate_state: bool = False,
    ) -> Confirmation:
        """What the real compiler makes of a step, beside what is predicted of it.

        machine: "tpu" or "gpu" for the one that `on` named; else a machine, or a name
            as for `mw.machine`; its compiler is that of `meshwright[tpu]` or `[gpu]`.
        full: let the TPU compiler generate code too, a minute or more, to tell seconds.
        folder: an empty or new one that keeps the compiler's own files.
        donate_state: as in `on`, which says it where it named the machine.
        Raises as `on`, and `CompilerError` where there is no such compiler, it is not
        installed, fails or takes longer.
        """
        from meshwright.app.confirm import confirmation  # which is seldom needed

        placed = confirmation.place_plan(self, machine, donate_state)
        kept = None if folder is None else Path(folder)
        return confirmation.confirm_placed(placed, full, timeout_s, kept)

    def trace(self, path: str | PathLike[str], others: Sequence[Plan] = ()) -> None:
        """Write a step as trace events, for Perfetto; other plans stand below it.

        Raises `PlanError` for a plan on no machine, and where nothing can be written.
        """
        from meshwright.app.report.trace_events import (
            write_trace,  # which is seldom needed
        )

        write_trace((self, *others), path)

    def report(self, path: str | PathLike[str], others: Sequence[Plan] = ()) -> None:
        """Write a page about a step as one HTML file; it compares `others` with it.

        Raises `PlanError` for a plan on no machine, and where nothing can be written.
        """
        from meshwright.app.report import write_report  # which is seldom needed

        write_report(self, path, others)

    # -- as shardings, JSON and text -----------------------------------------------------

    @property
    def in_shardings(self) -> Any:
        """Shardings for `jax.jit(fn, in_shardings=...)`: a tuple, one tree per argument.

        Needs the mesh's devices. Keyword arguments have none in `jax.jit`. Of a plan
        read from JSON, a flat tuple in the order of `inputs`.
        """
        flat = self._named(self.inputs)
        if self.decided is None:
            return flat
        args, _ = jax.tree_util.tree_unflatten(self.decided.captured.in_tree, flat)
        return args

    @property
    def out_shardings(self) -> Any:
        """Shardings for `jax.jit(fn, out_shardings=...)`, in the tree of the result."""
        flat = self._named(self.outputs)
        if self.decided is None:
            return flat
        return jax.tree_util.tree_unflatten(self.decided.captured.out_tree, flat)

    def _named(self, leaves: Sequence[Leaf]) -> tuple[Any, ...]:
        mesh = self.mesh
        if any(SUB_AXIS in a for leaf in leaves for axes in leaf.spec for a in axes):
            if self.decided is None:
                raise PlanError(
                    "shardings over parts of an axis need the plan that was made here"
                )
            mesh = self.decided.lowered.mesh
        return named_shardings(jax_mesh(mesh), [Sharding(leaf.spec) for leaf in leaves])

    def to_json(self) -> str:
        """All of it as JSON text; `from_json` is the inverse."""
        fields = {
            "format": FORMAT,
            "mesh": self.mesh.shape,
            "gather": self.gather.value,
            "counts": dict(self.counts),
            "collectives": [dataclasses.asdict(c) for c in self.collectives],
            "inputs": [dataclasses.asdict(leaf) for leaf in self.inputs],
            "outputs": [dataclasses.asdict(leaf) for leaf in self.outputs],
            "steps": [dataclasses.asdict(s) for s in self.steps],
            "whole": list(self.whole),
            "figures": self.figures and dataclasses.asdict(self.figures),
        }
        return json.dumps(fields, indent=1)

    @staticmethod
    def from_json(text: str) -> Plan:
        """The plan that `to_json` wrote; `PlanError` for anything else."""
        try:
            fields = json.loads(text)
            if fields["format"] != FORMAT:
                raise PlanError(f"plan has format {fields['format']}; this is {FORMAT}")
            return Plan(
                Mesh(fields["mesh"]),
                Gather(fields["gather"]),
                fields["counts"],
                tuple(Collective(**_tuples(c)) for c in fields["collectives"]),
                tuple(Leaf(**_tuples(leaf)) for leaf in fields["inputs"]),
                tuple(Leaf(**_tuples(leaf)) for leaf in fields["outputs"]),
                tuple(Step(**_tuples(s)) for s in fields["steps"]),
                tuple(fields["whole"]),
                read_figures(fields["figures"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise PlanError(
                f"this is no plan: {error!r}; wanted the text of to_json, not a path"
            ) from error

    def __str__(self) -> str:
        return show_plan(self)

    def spec(self, path: str) -> PartitionSpec:
        """The `PartitionSpec` of one input or output leaf, by its path."""
        for leaf in (*self.inputs, *self.outputs):
            if leaf.path == path:
                return leaf.partition_spec
        raise PlanError(
            f"no leaf {path!r}; there are {[leaf.path for leaf in self.inputs][:8]}"
        )


def _tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """JSON's lists as tuples, at every depth."""

    def convert(value: Any) -> Any:
        return tuple(map(convert, value)) if isinstance(value, list) else value

    return {key: convert(value) for key, value in fields.items()}


def make_plan(
    captured: Captured,
    mesh: Mesh,
    tactics: Sequence[Tactic],
    gather: Gather,
    graph: Graph | None = None,
    known: Lowered | None = None,
) -> Plan:
    """Decide, lower, and describe.

    graph: as in `apply_tactics`. known: what these tactics come to on that graph.
    """
    steps: list[Step] = []
    seen = Seen()
    lowered, counts = known, dict[str, int]()
    counted = -1  # the version of the state that these are of

    def after_tactic(tactic: Tactic | None, work: Workspace) -> None:
        nonlocal seen, lowered, counts, counted
        if work.state.version != counted:  # not all tactics decide anything
            is_last = len(steps) == len(tactics)
            lowered = (is_last and known) or lower(work.state, gather, XLA_WORKAROUNDS)
            counts = count_collectives(lowered.program)
            counted = work.state.version
        step, seen = describe_step(tactic, work, counts, seen)
        steps.append(step)

    work = apply_tactics(captured, mesh, tactics, after_tactic, graph)
    assert lowered is not None, "the program as it was is lowered in any case"
    decided = Decided(captured, work, lowered, tuple(tactics), gather)
    program, units = captured.program, work.sub_axes
    return Plan(
        mesh,
        gather,
        counts,
        describe_collectives(decided),
        describe_leaves(captured.paths, program.inputs, lowered.inputs, units),
        describe_leaves(captured.out_paths, program.outputs, lowered.outputs, units),
        tuple(steps),
        whole_ops(decided),
        decided=decided,
    )
