"""`pipeline`: a step whose stages run on submeshes, one microbatch after another.

A submesh is a part of the mesh; a microbatch is one of the equal parts of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from meshwright.app.check.check import check_outputs
from meshwright.app.check.report import CheckReport, tolerance_of
from meshwright.app.partition import Partitioned, partition
from meshwright.app.pipeline.build import (
    StagedStep,
    find_step,
    make_pipeline,
    stage,
    with_layers,
)
from meshwright.app.pipeline.describe import make_plan
from meshwright.app.pipeline.options import (
    Options,
    PipelineCut,
    ScheduleChoice,
    Tactics,
    as_submeshes,
    checked_tactics,
    planned,
)
from meshwright.app.pipeline.plan import StagedPlan
from meshwright.app.step.specialized import Specialized
from meshwright.errors import PlanError
from meshwright.machine import Mesh
from meshwright.machine.memory_size import memory_bytes
from meshwright.partitioner.stages import StagePoint, forward_program
from meshwright.planner.pipeline.pipeline_plan import PipelinePlan
from meshwright.program.analysis.narrowest_floats import narrowest_floats
from meshwright.program.capture.arguments import Names, Numbers, require_arrays
from meshwright.program.ir import Program
from meshwright.run.pipeline import PipelineExecutable


def pipeline(  # noqa: PLR0913  the options of `partition` and of a pipeline
    fn: Callable[..., Any],
    mesh: Mesh | Mapping[str, int] | Sequence[Mesh | Mapping[str, int]] | PipelinePlan,
    tactics: Tactics = (),
    *,
    stages: int | Sequence[int | StagePoint] | None = None,
    microbatches: int = 8,
    schedule: ScheduleChoice = "1f1b",
    batch: str | Sequence[str] | None = None,
    statistics: str = "whole",
    memory: float | str | None = None,
    static_argnums: Numbers = None,
    static_argnames: Names = None,
) -> Pipelined:
    """The function `fn`, divided into pipeline stages that run on parts of a mesh.

    fn: an ordinary train step over a whole batch, as for `partition`. The result is the
        same up to rounding: gradients are summed over microbatches, and the update runs
        once.
    mesh: a mesh whose first axis is `stage`, with one submesh for each position along it.
        Or a list of submeshes, which may differ in size. Or the plan that `autoplan` with
        `pipeline=True` found: its submeshes, tactics, stages and schedule are used.
    tactics: tactics for all stages on their submeshes, as in `partition`; or a mapping from
        the names of stages to their tactics.
    stages: number of stages, cut where they have equal work. Or the positions of ops in
        `pipelined.forward(...)` where all stages but the first begin, or these positions as
        `StagePoint`s of the captured step. By default the stages that `mw.stage` marks in
        `fn`, and without marks one stage for each submesh.
    microbatches: number of parts of the batch.
    schedule: a name in `SCHEDULES`, a `Schedule`, or a function that makes one from the
        numbers of stages and of microbatches.
    batch: patterns of the inputs that contain the batch, as in `data_parallel`.
    statistics: what happens to sums over the batch in the middle of a step, such as those
        of a batch norm: "whole" refuses them, "microbatch" takes them over each microbatch.
    memory: memory limit of a device, such as "16GiB". A schedule that would need more
        raises `ScheduleError` before it runs, with the stage and the microbatch.
    static_*: as in `jax.jit`.
    """
    patterns = (batch,) if isinstance(batch, str) else tuple(batch or ())
    limit = None if memory is None else memory_bytes(memory)
    cut = _cut_of(mesh, tactics, stages, microbatches, schedule)
    options = Options(*cut, patterns, statistics, limit)
    alone = partition(
        fn,
        {"all": 1},
        static_argnums=static_argnums,
        static_argnames=static_argnames,
    )
    return Pipelined(alone, options)


def _cut_of(
    mesh: Mesh | Mapping[str, int] | Sequence[Mesh | Mapping[str, int]] | PipelinePlan,
    tactics: Tactics,
    stages: int | Sequence[int | StagePoint] | None,
    microbatches: int,
    schedule: ScheduleChoice,
) -> PipelineCut:
    """The options that decide how the step is divided: the caller's, or those of a plan.

    They are submeshes, tactics, stages, microbatches and schedule. Raises `PlanError` if
    tactics or stages are given in addition to a plan.
    """
    if isinstance(mesh, PipelinePlan):
        if tactics or stages is not None:
            raise PlanError(
                "a plan has tactics and stages already; give the plan alone"
            )
        return planned(mesh)
    positions = stages if isinstance(stages, int | None) else tuple(stages)
    chosen = checked_tactics(tactics), positions, microbatches, schedule
    return as_submeshes(mesh), *chosen


@dataclass(eq=False, repr=False)
class Pipelined:
    """A pipelined function, built once per signature (types) of its arguments.

    alone: the same function partitioned on one device, which does the tracing.
    """

    alone: Partitioned
    options: Options
    _staged: dict[Specialized, StagedStep] = field(default_factory=dict)
    _executables: dict[Specialized, PipelineExecutable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.__name__ = self.alone.__name__
        self.__doc__ = self.alone.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the submeshes; each result stays on the submesh that computes it."""
        specialized, leaves = self.alone.specialize(args, kwargs)
        require_arrays(specialized.captured.paths, leaves)
        outputs = self._executable(specialized)(leaves)
        return jax.tree_util.tree_unflatten(specialized.captured.out_tree, outputs)

    def forward(self, *args: Any, **kwargs: Any) -> Program:
        """The forward pass of one microbatch; stages may begin at its ops.

        It prints as one line for each op, with the position that `stages` takes.
        """
        captured = self.alone.capture(*args, **kwargs)
        opened = with_layers(captured, self.options)
        return forward_program(find_step(opened, self.options))

    def stage(self, *args: Any, **kwargs: Any) -> StagedStep:
        """The step for these arguments, divided into stages but not compiled yet."""
        return self._stages(self.alone.specialize(args, kwargs)[0])

    def plan(self, *args: Any, **kwargs: Any) -> StagedPlan:
        """The plan for these arguments, which are arrays or `ShapeDtypeStruct`s."""
        return make_plan(self.stage(*args, **kwargs))

    def check(self, *args: Any, **kwargs: Any) -> CheckReport:
        """Compare all outputs with those of the original function on one device.

        With statistics="microbatch", the comparison is with the microbatches one after
        another on one device, since sums over the batch differ from the original's.
        """
        specialized, leaves = self.alone.specialize(args, kwargs)
        require_arrays(specialized.captured.paths, leaves)
        run = self._executable(specialized)
        if self.options.statistics == "whole":
            return specialized.check_run(run, leaves)
        one = self.options.on_one_device()
        alone = make_pipeline(stage(specialized.captured, one))
        captured = specialized.captured
        rounding = narrowest_floats(captured.program, tolerance_of)
        compared = captured.out_paths, lambda *each: alone(each), run
        return check_outputs(*compared, leaves, rounding)

    def _stages(self, specialized: Specialized) -> StagedStep:
        if specialized not in self._staged:
            self._staged[specialized] = stage(specialized.captured, self.options)
        return self._staged[specialized]

    def _executable(self, specialized: Specialized) -> PipelineExecutable:
        if specialized not in self._executables:
            staged = self._stages(specialized)
            if self.options.memory_bytes is not None:
                make_plan(staged).require_memory(self.options.memory_bytes)
            self._executables[specialized] = make_pipeline(staged)
        return self._executables[specialized]
