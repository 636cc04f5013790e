"""Plans that experts write by hand, such as FSDP or Megatron, applied to any mesh.

They are candidates of a search, and starting points of the integer program's solver.
"""

from collections.abc import Iterator, Mapping, Sequence

from meshwright.errors import MeshwrightError
from meshwright.machine import Mesh
from meshwright.partitioner.structure.input_roles import find_roles
from meshwright.partitioner.tactics import (
    Tactic,
    Workspace,
    data_parallel,
    expert_parallel,
    fsdp,
    inference,
    megatron,
    sequence_parallel,
    zero,
)
from meshwright.planner.candidates.candidate import Candidate
from meshwright.planner.candidates.proposal import Proposal
from meshwright.planner.integer_program.integer_program import IntegerProgram
from meshwright.planner.integer_program.projection import read_choices, spread_choices
from meshwright.planner.solve.optimum import Choices
from meshwright.planner.solve.space import PricedProgram, Space
from meshwright.program.records import paused_collector

AS_GIVEN = "as given"
"""Name of the plan that consists of the user's own tactics only."""

type ExpertChoices = tuple[str, tuple[Tactic, ...], Choices]
"""An expert strategy: its name, its tactics, and its choices in the integer program.

The choices are those nearest to what the tactics decide.
"""


def expert_strategies(mesh: Mesh) -> Mapping[str, tuple[Tactic, ...]]:
    """Lists of tactics that experts use for training on a mesh, by strategy name."""
    data = data_parallel(mesh.axes[0])
    match mesh.axes:
        case (axis,):
            return {
                "data parallel": (data,),
                "ZeRO-2": (data, zero(2, axis)),
                "ZeRO-3": (data, zero(3, axis)),
                "FSDP": (data, fsdp(axis)),
                "expert parallel": (data, expert_parallel(axis)),
                "Megatron": (megatron(axis),),
            }
        case (outer, inner):
            model, sequence = megatron(inner), sequence_parallel(inner)
            return {
                "Megatron + data": (data, model),
                "Megatron + ZeRO-2": (data, model, zero(2, outer)),
                "Megatron + ZeRO-3": (data, model, zero(3, outer)),
                "Megatron + sequence + ZeRO-3": (data, model, sequence, zero(3, outer)),
                "data on both axes": (data, data_parallel(inner)),
                "expert + data parallel": (data, expert_parallel(inner)),
                "expert + ZeRO-3": (data, expert_parallel(inner), zero(3, outer)),
            }
        case (outer, middle, inner):
            more, model = data_parallel(middle), megatron(inner)
            experts, sharded = expert_parallel(middle), zero(3, outer)
            return {
                "Megatron + data on both": (data, more, model),
                "Megatron + data on both + ZeRO-3": (data, more, model, sharded),
                "Megatron + expert + ZeRO-3": (data, experts, model, sharded),
            }
        case _:
            return {}


def inference_strategies(mesh: Mesh) -> Mapping[str, tuple[Tactic, ...]]:
    """Layouts to serve a decoder, by name, after Pope et al. (MLSys 2023).

    With its vocabulary whole, the 2-D layout stores weights as the gathered ones do, so
    that prefill and decoding can share them.
    """
    axes = mesh.axes
    layouts = ["weight_stationary_1d", "weight_stationary_2d", "weight_gathered_x"]
    layouts += ["weight_gathered_xy", "weight_gathered_xyz"][: len(axes) - 1]
    found: dict[str, tuple[Tactic, ...]] = {}
    for layout in layouts if len(axes) > 1 else ():
        for by in ("heads", "batch"):
            name = f"{layout.replace('_', ' ')}, attention by {by}"
            found[name] = (inference(layout, axes, attention=by),)
            if layout == "weight_stationary_2d":
                whole = inference(layout, axes, attention=by, vocabulary=False)
                found[f"{name}, vocabulary whole"] = (whole,)
    return found


def is_served(work: Workspace) -> bool:
    """Whether a program reads weights and updates none, as one that serves a model."""
    params = find_roles(work).params
    return bool(params) and set(params).isdisjoint(work.graph.ties.values())


class ExpertPlans:
    """The expert strategies, each applied once per mesh and remembered.

    candidates: list to which strategies are added that raise an error, with the reason.
    """

    def __init__(self, space: Space, candidates: list[Candidate]) -> None:
        self.space = space
        self.candidates = candidates
        self._read: dict[Mesh, list[ExpertChoices]] = {}

    def choices_on(self, mesh: Mesh) -> list[Choices]:
        """The expert strategies on a mesh, as choices in its integer program.

        Empty before `on` is called with this mesh.
        """
        return [choices for _, _, choices in self._read.get(mesh, ())]

    def choices_of(self, name: str, mesh: Mesh) -> Choices | None:
        """One expert strategy on a mesh, as choices in its integer program, if it is known.

        Nearest to what it decides; see `choices_on`.
        """
        known = (choices for own, _, choices in self._read.get(mesh, ()) if own == name)
        return next(known, None)

    @paused_collector()
    def on(self, mesh: Mesh, priced: PricedProgram) -> list[Proposal]:
        """A proposal for each expert strategy that applies to a mesh.

        Strategies that raise an error are left out.
        """
        if mesh not in self._read:
            self._read[mesh] = list(self._read_on(mesh, priced.model))
        return [
            Proposal(
                name,
                mesh,
                tactics,
                priced.pricer.finite_seconds(choices),
                priced.pricer.peak_bytes(choices),
                choices,
            )
            for name, tactics, choices in self._read[mesh]
        ]

    def _read_on(self, mesh: Mesh, model: IntegerProgram) -> Iterator[ExpertChoices]:
        kept = self.space.kept_tactics
        alone: Mapping[str, tuple[Tactic, ...]] = {AS_GIVEN: ()} if kept else {}
        start = self.space.start(mesh)
        applied = _AppliedTactics(start)
        served = inference_strategies(mesh) if is_served(start) else {}
        for name, tactics in {**alone, **expert_strategies(mesh), **served}.items():
            try:
                work = applied.switch_to(tactics)
            except MeshwrightError as error:
                refused = Candidate(name, mesh, (*kept, *tactics), why_not=str(error))
                recorded = [(c.name, c.mesh, c.why_not) for c in self.candidates]
                if (
                    name,
                    mesh,
                    refused.why_not,
                ) not in recorded:  # by an earlier search
                    self.candidates.append(refused)
                continue
            yield name, tactics, read_choices(model, work.state)


class _AppliedTactics:
    """A workspace to which one list of tactics after another is applied.

    Tactics with which two consecutive lists both begin stay applied; the others are
    rolled back.
    """

    def __init__(self, work: Workspace) -> None:
        self._work = work
        self._applied: list[Tactic] = []
        self._marks = [work.mark()]  # at the start and after each tactic

    def switch_to(self, tactics: Sequence[Tactic]) -> Workspace:
        """Apply exactly these tactics, and return the workspace.

        Errors that tactics raise are passed on.
        """
        same = 0
        for tactic, other in zip(self._applied, tactics, strict=False):
            if tactic != other:
                break
            same += 1
        del self._applied[same:], self._marks[same + 1 :]
        self._work.rollback(self._marks[-1])
        for tactic in tactics[same:]:
            try:
                tactic.apply(self._work)
            except MeshwrightError:
                self._work.rollback(self._marks[-1])
                raise
            self._applied.append(tactic)
            self._marks.append(self._work.mark())
        return self._work


def spread_over_axes(
    flat: Choices, source: PricedProgram, target: PricedProgram
) -> Choices | None:
    """The choices `flat` of a one-axis mesh, carried over to the mesh of `target`.

    Each dim that the one axis splits is split by all axes of the other mesh together.
    `None` if the two integer programs have different classes of equal nodes, since the
    user's tactics may decide differently on different meshes.
    """
    if source.model.reduced_graph.class_of != target.model.reduced_graph.class_of:
        return None
    sub_axes, all_sub_axes = (
        [u for run in each.work.sub_axes.values() for u in run]
        for each in (source, target)
    )
    return spread_choices(source.model, flat, target.model, sub_axes, all_sub_axes)
