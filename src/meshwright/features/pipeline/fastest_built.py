"""The fastest pipeline of those that are built and simulated, from planned ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from meshwright.errors import PlanError, StageError
from meshwright.features.pipeline.build import StageTacticError, stage
from meshwright.features.pipeline.corrections import Corrections
from meshwright.features.pipeline.describe import make_plan
from meshwright.features.pipeline.pipeline_options import Options, planned_options
from meshwright.features.pipeline.plan.pipeline_plan import PipelinePlan
from meshwright.features.pipeline.planning.pipeline_planner import PipelinePlanner
from meshwright.features.pipeline.planning.pipeline_task import BUILD
from meshwright.features.pipeline.planning.planned_pipeline import PlannedPipeline
from meshwright.features.pipeline.stages.staged_step import StagedStep
from meshwright.machine.memory_size import show_bytes
from meshwright.program.analysis.executions import num_iterations
from meshwright.program.capture import Captured
from meshwright.program.ir import Program

_MOST_BUILDS = 6
"""Largest number of pipelines that are built to find the fastest one that fits."""


def fastest_built(
    captured: Captured,
    planner: PipelinePlanner,
    on_machine: Callable[[PipelinePlan], PipelinePlan],
) -> PipelinePlan:
    """The fastest plan that fits, of the stages that were built.

    The planner prices blocks of ops, and adds them up to stages. What built stages take
    corrects the prices of their strategies, and it searches again, until no plan is
    priced faster than the best one, or the time is over.
    """
    task = planner.task
    learned = Corrections(task.machine.num_devices)
    planner.corrected = learned.corrected
    best: PipelinePlan | None = None
    built: list[tuple[object, ...]] = []
    while len(built) < _MOST_BUILDS:
        try:
            planned = planner.best()
        except PlanError:
            if best is None:
                raise
            break
        key = _choices(planned)
        if key in built or (best and not _is_worthwhile(planned, best, planner)):
            break
        built.append(key)
        planned, plan = _buildable_plan(captured, planner, planned)
        plan = on_machine(plan)
        learned.learn(planned.stages, plan.stages)
        task.on_progress(_compared(planned, plan))
        if plan.fits and (best is None or plan.step_time_s < best.step_time_s):
            best = plan
    if best is None:
        raise PlanError(
            f"no pipeline was found that fits into {show_bytes(task.limit_bytes)} of a "
            f"device once its stages are built, of {len(built)} that were built; use more "
            "devices, or a smaller batch"
        )
    return best


def _is_worthwhile(
    planned: PlannedPipeline, best: PipelinePlan, planner: PipelinePlanner
) -> bool:
    """Whether a planned pipeline may be faster than the best, and can be built in time."""
    meter = planner.task.meter
    ends_s = meter.read() + BUILD.seconds * _num_ops(planner.step.program, planned)
    return planned.step_time_s < best.step_time_s and ends_s < meter.end_s


def _num_ops(program: Program, planned: PlannedPipeline) -> int:
    """The number of ops of built stages; loops over layers are written out for several."""
    is_unrolled = len(planned.stages) > 1
    return sum(
        (num_iterations(op) if is_unrolled else 1) * sum(1 for _ in body.walk())
        for op in program.ops
        for body in op.bodies
    ) + len(program.ops)


def _compared(planned: PlannedPipeline, plan: PipelinePlan) -> str:
    """A line about a pipeline as it was priced and as it is built."""
    priced_bytes = show_bytes(max(planned.simulate().peak_bytes))
    return (
        f"built: {plan.step_time_s * 1e3:,.1f} ms, {show_bytes(plan.peak_memory_bytes)}; "
        f"priced: {planned.step_time_s * 1e3:,.1f} ms, {priced_bytes}"
    )


def _choices(planned: PlannedPipeline) -> tuple[object, ...]:
    """The choices that tell the built programs of two planned pipelines apart."""
    stages = ((stage.choice, stage.mesh) for stage in planned.stages)
    return (planned.schedule_name, planned.num_microbatches, *stages)


def _buildable_plan(
    captured: Captured, planner: PipelinePlanner, planned: PlannedPipeline
) -> tuple[PlannedPipeline, PipelinePlan]:
    """A planned pipeline and its plan, or the next best one that can be built.

    The planner prices strategies on the captured step. In the built step, each layer of a
    loop has ops and weights of its own, and tactics may find nothing to cut there: the
    planner then searches without them. If the batch cannot be divided into microbatches,
    it searches with a single one.
    """
    meter = planner.task.meter
    while True:
        planner.task.on_progress("building the stages of the best pipeline")
        meter.count(BUILD, _num_ops(planner.step.program, planned))
        try:
            return planned, built_plan(captured, planned)
        except StageTacticError as error:
            planner.leave_out(error.tactics, str(error))
        except StageError as error:
            if planned.num_microbatches == 1:
                raise PlanError(
                    f"the pipeline that the search found cannot be built: {error}"
                ) from error
            planner.task.on_progress(f"one microbatch alone: {error}")
            planner.task = replace(planner.task, microbatches=(1,))
        planned = planner.best()


def built_plan(captured: Captured, planned: PlannedPipeline) -> PipelinePlan:
    """The plan of the stages that the planner has chosen, built but not simulated."""
    staged, options, notes = _built(captured, planned)
    plan = make_plan(staged, options)
    stages = (
        replace(stage, choice=found.choice)
        for stage, found in zip(plan.stages, planned.stages, strict=True)
    )
    return replace(plan, notes=plan.notes + notes, stages=tuple(stages))


def _built(
    captured: Captured, planned: PlannedPipeline
) -> tuple[StagedStep, Options, tuple[str, ...]]:
    """The programs of a planned pipeline, its options, and notes about them.

    Sums over the batch in the middle of the step are taken over each microbatch if the
    pipeline cannot be built otherwise. Raises `StageError` if it cannot be built at all.
    """
    options = planned_options(planned)
    try:
        return stage(captured, options), options, ()
    except StageError as error:
        own = planned_options(planned, "microbatch")
        staged, why = stage(captured, own), str(error)
    note = (
        "sums over the batch in the middle of the step, such as a batch norm's, are taken "
        f"over each microbatch (statistics='microbatch'); over the whole batch: {why}"
    )
    return staged, own, (note,)
