"""`pipeline`: a step whose stages run on submeshes, one microbatch after another.

A submesh is a part of the mesh; a microbatch is one of the equal parts of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from meshwright.app.check.compare_outputs import check_outputs
from meshwright.app.check.report import CheckReport, tolerance_of
from meshwright.app.partition import partition
from meshwright.app.partitioned import Partitioned
from meshwright.app.step.specialized import Specialized
from meshwright.errors import PlanError
from meshwright.features.pipeline.build import (
    find_step,
    stage,
    with_layers,
)
from meshwright.features.pipeline.describe import make_plan
from meshwright.features.pipeline.executable import make_pipeline
from meshwright.features.pipeline.one_program import SinglePipelined, single_program
from meshwright.features.pipeline.pipeline_options import (
    Options,
    ScheduleChoice,
    Tactics,
    as_submeshes,
    checked_tactics,
    plan_options,
)
from meshwright.features.pipeline.plan.pipeline_plan import PipelinePlan
from meshwright.features.pipeline.running.runtime import PipelineExecutable
from meshwright.features.pipeline.stages.cuts import forward_program
from meshwright.features.pipeline.stages.marks import StagePoint
from meshwright.features.pipeline.stages.staged_step import StagedStep
from meshwright.machine import Mesh
from meshwright.machine.memory_size import memory_bytes
from meshwright.program.analysis.narrowest_floats import narrowest_floats
from meshwright.program.capture.arguments import Names, Numbers, require_arrays
from meshwright.program.capture.donation import require_separate
from meshwright.program.ir import Program
from meshwright.run.local.layer_stack import LayerStack

if TYPE_CHECKING:
    from meshwright.features.cluster.client import Slice


type Submeshes = (
    Mesh | Mapping[str, int] | Sequence[Mesh | Mapping[str, int] | Slice] | PipelinePlan
)


def pipeline(  # noqa: PLR0913  the options of `partition` and of a pipeline
    fn: Callable[..., Any],
    mesh: Submeshes,
    tactics: Tactics = (),
    *,
    stages: int | Sequence[int | StagePoint] | None = None,
    microbatches: int = 8,
    schedule: ScheduleChoice = "1f1b",
    batch: str | Sequence[str] | None = None,
    statistics: str = "whole",
    memory: float | str | None = None,
    form: str = "programs",
    static_argnums: Numbers = None,
    static_argnames: Names = None,
) -> Pipelined | SinglePipelined:
    """The function `fn`, cut into stages that run on parts of a mesh.

    fn: an ordinary step over a whole batch, as for `partition`. It computes the same, up
        to rounding: gradients are summed over microbatches, and updated once.
    mesh: a mesh whose first axis is `stage`, with one submesh for each position along it.
        Or a list of submeshes, which need not be equal, or of slices of a cluster, on
        which results stay. Or a `PipelinePlan`, as `autoplan` with `pipeline=True` finds
        one: its submeshes, tactics, stages, microbatches and schedule are used.
    tactics: applied to the stages on their submeshes, as in `partition`; or by the name
        of a stage.
    stages: number of stages, cut where they have equal work; or the positions of ops in
        `pipelined.forward(...)` where all stages but the first begin; or these places as
        `StagePoint`s of the captured step. By default the marks of `mw.stage` in `fn`,
        and without marks one stage for each submesh.
    microbatches: number of parts of the batch.
    schedule: a name in `SCHEDULES`, a `Schedule`, or a function from numbers of stages
        and of microbatches to one.
    batch: patterns of the leaves that contain the batch, as in `data_parallel`.
    statistics: what sums over the batch in the middle of a step, as of a batch norm, are
        over: "whole" refuses them, "microbatch" takes them over each microbatch.
    memory: bytes of a device, such as "16GiB"; a schedule that would need more raises
        `ScheduleError` before it runs, with the stage and the microbatch.
    form: "programs" has programs for each stage. "single" is one program, in which `stage`
        is an axis: for steps with a `lax.scan` over layers, each stage has as many.
    static_*: as in `jax.jit`.
    """
    limit_bytes = None if memory is None else memory_bytes(memory)
    slices: tuple[Slice, ...] = ()
    if isinstance(mesh, PipelinePlan):
        if tactics or stages is not None:
            raise PlanError(
                "a plan has tactics and stages already; give the plan alone"
            )
        options = plan_options(mesh, limit_bytes)
    else:
        slices = _slices(mesh)
        submeshes: Any = [each.mesh for each in slices] or mesh
        options = Options(
            as_submeshes(submeshes),
            checked_tactics(tactics),
            stages if isinstance(stages, int | None) else tuple(stages),
            microbatches,
            schedule,
            batch=(batch,) if isinstance(batch, str) else tuple(batch or ()),
            statistics=statistics,
            memory_bytes=limit_bytes,
        )
    alone = partition(
        fn,
        {"all": 1},
        static_argnums=static_argnums,
        static_argnames=static_argnames,
    )
    if form not in ("programs", "single"):
        raise PlanError(f"form is {form!r}; wanted 'programs' or 'single'")
    if form == "single":
        return single_program(alone, mesh, options)
    return Pipelined(alone, options, slices)


def _slices(mesh: Any) -> tuple[Slice, ...]:
    """The slices of a cluster that take the place of submeshes; none if there are none.

    Raises `PlanError` for slices of several clusters, and beside submeshes.
    """
    if not isinstance(mesh, Sequence):
        mesh = (mesh,)
    if all(isinstance(each, Mesh | Mapping) for each in mesh):
        return ()
    from meshwright.features.cluster.client import Slice

    slices = tuple(each for each in mesh if isinstance(each, Slice))
    if not slices:  # something else, which is refused with the meshes
        return ()
    if len(slices) < len(mesh):
        raise PlanError(
            "some submeshes are slices of a cluster and some are not; give a slice for "
            "each submesh, or none"
        )
    if len({each.session for each in slices}) > 1:
        raise PlanError("the slices are of several clusters; wanted those of one")
    return slices


@dataclass(eq=False, repr=False)
class Pipelined:
    """A pipelined function, built once per signature of its arguments.

    alone: the function on one device. slices: of a cluster, in the place of submeshes.
    """

    alone: Partitioned
    options: Options
    slices: tuple[Slice, ...] = ()
    _staged: dict[Specialized, StagedStep] = field(default_factory=dict)
    _executables: dict[Specialized, PipelineExecutable] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.__name__ = self.alone.__name__
        self.__doc__ = self.alone.__doc__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run on the submeshes; results are where the stage that computes them is.

        On slices of a cluster, results are handles, and computed later.
        """
        specialized, leaves = self.alone.specialize(args, kwargs)
        captured = specialized.captured
        require_arrays(captured.paths, leaves)
        require_separate(captured.paths, leaves, captured.donated)
        outputs = self._run(specialized, leaves)
        return jax.tree_util.tree_unflatten(specialized.captured.out_tree, outputs)

    def forward(self, *args: Any, **kwargs: Any) -> Program:
        """The forward pass of one microbatch; stages may begin at its ops.

        It prints as one line for each op, with the position that `stages` takes.
        """
        captured = self.alone.capture(*args, **kwargs)
        opened = with_layers(captured, self.options)
        return forward_program(find_step(opened.captured, self.options))

    def stage(self, *args: Any, **kwargs: Any) -> StagedStep:
        """The step for these arguments, divided into stages but not compiled yet."""
        return self._stages(self.alone.specialize(args, kwargs)[0])

    def plan(self, *args: Any, **kwargs: Any) -> PipelinePlan:
        """The plan for these arguments, which are arrays or `ShapeDtypeStruct`s."""
        return make_plan(self.stage(*args, **kwargs), self.options)

    def check(self, *args: Any, **kwargs: Any) -> CheckReport:
        """Compare all outputs with those of the original function on one device.

        With statistics="microbatch", the comparison is with the microbatches one after
        another on one device, since sums over the batch differ from the original's.
        """
        specialized, leaves = self.alone.specialize(args, kwargs)
        require_arrays(specialized.captured.paths, leaves)

        def run(leaves: Sequence[Any]) -> Sequence[Any]:
            outputs = self._run(specialized, leaves)
            return self.slices[0].fetch(outputs) if self.slices else outputs

        if self.slices:
            leaves = [x if isinstance(x, jax.Array) else np.asarray(x) for x in leaves]
        if self.options.statistics == "whole":
            return specialized.check_run(run, leaves)
        one = self.options.on_one_device()
        alone = make_pipeline(stage(specialized.captured, one))
        captured = specialized.captured
        rounding = narrowest_floats(captured.program, tolerance_of)

        def one_by_one(*each: Any) -> Sequence[Any]:
            outputs = alone(each)
            return [x.joined() if isinstance(x, LayerStack) else x for x in outputs]

        compared = captured.out_paths, one_by_one, run
        return check_outputs(*compared, leaves, rounding)

    def _run(self, specialized: Specialized, leaves: Sequence[Any]) -> list[Any]:
        """The flat outputs of the step; on a cluster, all of them are handles."""
        outputs = self._executable(specialized)(leaves)
        return self.slices[0].put(outputs) if self.slices else outputs

    def _stages(self, specialized: Specialized) -> StagedStep:
        if specialized not in self._staged:
            self._staged[specialized] = stage(specialized.captured, self.options)
        return self._staged[specialized]

    def _executable(self, specialized: Specialized) -> PipelineExecutable:
        if specialized not in self._executables:
            staged = self._stages(specialized)
            if self.options.memory_bytes is not None:
                make_plan(staged, self.options).require_memory(
                    self.options.memory_bytes
                )
            self._executables[specialized] = make_pipeline(staged, self.slices)
        return self._executables[specialized]
