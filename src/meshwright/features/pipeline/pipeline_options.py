"""The options of a pipeline: submeshes, tactics, stages, microbatches, schedule.

A submesh is the part of the mesh on which a stage runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from meshwright.errors import PlanError
from meshwright.features.pipeline.planning.planned_pipeline import PlannedPipeline
from meshwright.features.pipeline.schedules.generators import (
    SCHEDULES,
    STAGES_PER_SUBMESH,
    require_schedule,
)
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.features.pipeline.schedules.verify import verify
from meshwright.features.pipeline.stages.marks import StagePoint
from meshwright.machine import Mesh
from meshwright.partitioner.decide import as_tactics
from meshwright.partitioner.tactics import Tactic
from meshwright.program.capture.mesh import as_mesh

if TYPE_CHECKING:
    from meshwright.features.pipeline.plan.pipeline_plan import PipelinePlan

STAGE = "stage"
"""Name of the mesh axis along which the mesh is divided into submeshes for stages."""

type Tactics = Sequence[Tactic] | Mapping[str, Sequence[Tactic]]
type ScheduleChoice = str | Schedule | Callable[[int, int], Schedule]


@dataclass(frozen=True)
class Options:
    """The checked options of a pipeline.

    submeshes: the submeshes in order. tactics: tactics for all stages, or a mapping from
        the names of stages.
    stages: the number of stages, or where each stage but the first begins: the index of
        an op of the forward pass, or a `StagePoint`. `None` means the stages that
        `mw.stage` marks in the code, or without marks one stage per submesh.
    batch: path patterns of the inputs that contain the batch; empty to let `data_parallel`
        find them.
    statistics: "whole" or "microbatch": whether sums over the batch in the middle of the
        step, such as batch norm's, are over the whole batch or one microbatch.
    memory_bytes: memory limit of a device; `None` for no limit.
    """

    submeshes: tuple[Mesh, ...]
    tactics: Mapping[str, tuple[Tactic, ...]] | tuple[Tactic, ...]
    stages: int | tuple[int | StagePoint, ...] | None
    microbatches: int
    schedule: ScheduleChoice
    batch: tuple[str, ...]
    statistics: str
    memory_bytes: float | None = None

    def __post_init__(self) -> None:
        count = self.microbatches
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise PlanError(f"microbatches is {count!r}; wanted an int >= 1")
        if self.statistics not in ("whole", "microbatch"):
            raise PlanError(
                f"statistics is {self.statistics!r}; wanted 'whole' or 'microbatch'"
            )
        places = self.stages if isinstance(self.stages, tuple) else ()
        if any(not isinstance(each, int | StagePoint) for each in places):
            raise PlanError(
                f"stages is {list(places)!r:.200}; wanted the positions of ops or "
                "`StagePoint`s where stages begin, or the number of stages"
            )
        if isinstance(self.schedule, str):
            require_schedule(self.schedule)

    def tactics_of(self, stage: str) -> tuple[Tactic, ...]:
        """The tactics of the stage with this name."""
        if isinstance(self.tactics, Mapping):
            return self.tactics.get(stage, ())
        return self.tactics

    @property
    def has_own_statistics(self) -> bool:
        """Whether sums in the middle of the step are over one microbatch alone."""
        return self.statistics == "microbatch" or self.microbatches == 1

    @property
    def default_stages(self) -> int:
        """The number of stages if neither `mw.stage` marks nor the caller give it."""
        schedule = self.schedule
        if not isinstance(schedule, str):
            return len(self.submeshes)
        return STAGES_PER_SUBMESH.get(schedule, 1) * len(self.submeshes)

    def on_one_device(self) -> Options:
        """The options of one stage on one device, with the same microbatches.

        A check compares a pipeline with this.
        """
        mesh = (Mesh({"all": 1}),)
        return replace(self, submeshes=mesh, tactics=(), stages=1, schedule="gpipe")

    def schedule_for(self, num_stages: int) -> Schedule:
        """The schedule for this number of stages, checked for deadlocks.

        Raises `ScheduleError` for a deadlock, and `PlanError` if the schedule has other
        numbers of stages, submeshes or microbatches.
        """
        chosen = self.schedule
        if isinstance(chosen, str):
            chosen = SCHEDULES[chosen]
        found = (
            chosen
            if isinstance(chosen, Schedule)
            else chosen(num_stages, self.microbatches)
        )
        verify(found)
        if isinstance(self.schedule, str) and found.num_submeshes != len(
            self.submeshes
        ):
            each = STAGES_PER_SUBMESH.get(self.schedule, 1)
            raise PlanError(
                f"the step has {num_stages} stages, and schedule {self.schedule!r} wants "
                f"{each} for each submesh, of which there are {len(self.submeshes)}; give "
                f"{found.num_submeshes} submeshes, or mark (with mw.stage) or ask for "
                f"{each * len(self.submeshes)} stages"
            )
        given = (found.num_stages, found.num_submeshes, found.num_microbatches)
        wanted = (num_stages, len(self.submeshes), self.microbatches)
        if given != wanted:
            raise PlanError(
                "the schedule has {} stages on {} submeshes and {} microbatches; wanted "
                "{} on {} and {}".format(*given, *wanted)
            )
        return found


def as_submeshes(
    mesh: Mesh | Mapping[str, int] | Sequence[Mesh | Mapping[str, int]],
) -> tuple[Mesh, ...]:
    """The submeshes for stages, from a mesh with an axis `stage` or a list of meshes.

    Submeshes take consecutive devices of the mesh or of the process.
    """
    if isinstance(mesh, Sequence):
        return _consecutive([as_mesh(each) for each in mesh])
    whole = as_mesh(mesh)
    whole.require_spatial("a pipeline has its own loop over microbatches")
    if STAGE not in whole.axes:
        raise PlanError(
            f"mesh {whole} has no axis {STAGE!r}, whose parts are the submeshes of stages; "
            f"add one, such as {{'{STAGE}': 2, 'data': 4}}, or give a list of meshes"
        )
    if whole.axes[0] != STAGE:
        raise PlanError(
            f"mesh {whole} has {STAGE!r} behind other axes; wanted it first, so that each "
            "submesh has neighbouring devices"
        )
    sizes = {name: size for name, size in whole.sizes if name != STAGE}
    one = Mesh(sizes or {"data": 1})
    if whole.devices is None:
        return _consecutive([one] * whole.size(STAGE))
    count = one.num_devices
    return tuple(
        one.over(whole.devices[i * count : (i + 1) * count])
        for i in range(whole.size(STAGE))
    )


def plan_options(plan: PipelinePlan, memory_bytes: float | None = None) -> Options:
    """The options that make a plan's pipeline again."""
    meshes = {stage.submesh: stage.mesh for stage in plan.stages}
    return Options(
        _consecutive([meshes[submesh] for submesh in sorted(meshes)]),
        {stage.name: stage.tactics for stage in plan.stages},
        plan.starts,
        plan.num_microbatches,
        plan.schedule,
        plan.batch,
        plan.statistics,
        plan.limit_bytes if memory_bytes is None else memory_bytes,
    )


def planned_options(plan: PlannedPipeline, statistics: str = "whole") -> Options:
    """The options of what the planner has chosen."""
    choices = [stage.choice for stage in plan.stages if stage.choice is not None]
    assert len(choices) == len(plan.stages), "the planner has chosen all stages"
    meshes = {stage.submesh: stage.mesh for stage in plan.stages}
    return Options(
        _consecutive([meshes[submesh] for submesh in sorted(meshes)]),
        {str(number): choice.tactics for number, choice in enumerate(choices)},
        tuple(choice.start for choice in choices[1:]),
        plan.num_microbatches,
        plan.schedule,
        batch=(),
        statistics=statistics,
        memory_bytes=plan.limit_bytes,
    )


def _consecutive(meshes: Sequence[Mesh]) -> tuple[Mesh, ...]:
    if not meshes:
        raise PlanError(
            "a pipeline has no submeshes; give one for each group of stages"
        )
    for mesh in meshes:
        mesh.require_spatial("a pipeline has its own loop over microbatches")
    return tuple(meshes)


def checked_tactics(
    tactics: Tactics,
) -> Mapping[str, tuple[Tactic, ...]] | tuple[Tactic, ...]:
    """The tactics for all stages, or by the name of a stage; an error for anything else.

    Raises `PlanError` for a tactic that rewrites the program, whose stages are cut before.
    """
    if isinstance(tactics, Mapping):
        return {name: _without_rewrites(as_tactics(t)) for name, t in tactics.items()}
    return _without_rewrites(as_tactics(tactics))


def _without_rewrites(tactics: tuple[Tactic, ...]) -> tuple[Tactic, ...]:
    for tactic in tactics:
        if tactic.rewrite is not None:
            raise PlanError(
                f"{tactic} rewrites a whole program, and a pipeline's is cut into stages "
                "before; write jax.checkpoint around the layers of the step instead"
            )
    return tactics
