"""Pipeline planning from a train step to a plan: strategies, stages, a schedule.

Input: the train step, captured at several sizes of the batch, and a machine. Output:
the fastest `PlannedPipeline` that fits into memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from meshwright.errors import MeshwrightError, PlanError, ScheduleError
from meshwright.features.pipeline.planning.blocks.clustering import layer_starts
from meshwright.features.pipeline.planning.interleaving import (
    CHUNKS,
    Interleaving,
    even_stages,
    interleavings,
)
from meshwright.features.pipeline.planning.option_table import (
    OptionTable,
    StageRoom,
    option_table,
)
from meshwright.features.pipeline.planning.pipeline_stage import (
    PipelineStage,
    bubble_free_s,
    run_stages,
    step_s,
)
from meshwright.features.pipeline.planning.pipeline_task import (
    SCHEDULE,
    PipelineTask,
    microbatch_counts,
    near_divisors,
    submesh_sizes,
)
from meshwright.features.pipeline.planning.planned_pipeline import (
    PipelineFigures,
    PlannedPipeline,
)
from meshwright.features.pipeline.planning.priced_step import price_step
from meshwright.features.pipeline.planning.schedule_choice import (
    Tried,
    choose_schedule,
    num_evaluations,
)
from meshwright.features.pipeline.planning.stage_costs import StageOption, stage_options
from meshwright.features.pipeline.planning.stage_placement import StagePlacer
from meshwright.features.pipeline.planning.stage_slicing import (
    SlicedStage,
    slice_stages,
)
from meshwright.features.pipeline.schedules.generators import SCHEDULES
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.partitioner.tactics import Tactic
from meshwright.predict.links.transfer import transfer_s
from meshwright.search.arrays import Floats


class PipelinePlanner:
    """Planner of one train step: the priced strategies, and the layers of the step.

    corrected: function that corrects the costs of a strategy on submeshes of one size.
    """

    def __init__(self, task: PipelineTask) -> None:
        self.task = task
        self.began = time.monotonic()
        self.sizes = task.sizes or submesh_sizes(task.machine)
        self.priced, self.step = price_step(task)
        self.starts = layer_starts(self.step)
        self.corrected: Callable[[StageOption], StageOption] = lambda option: option

    def leave_out(self, tactics: tuple[Tactic, ...], why: str) -> None:
        """Search without the strategies with these tactics from now on.

        Raises `PlanError` with the reason if no strategy is left.
        """
        rest = [each for each in self.priced if each.strategy.tactics != tactics]
        assert len(rest) < len(self.priced), "the stage has tactics of a strategy"
        self.priced = rest
        if not rest:
            raise PlanError(f"no strategy suits the stages of this step: {why}")
        self.task.on_progress(f"left out, since stages cannot be built with it: {why}")

    def best(self) -> PlannedPipeline:
        """The fastest plan over all numbers of microbatches to try.

        After all of `counts`, other divisors of the batch near the best are tried. A
        schedule is searched for the fastest plan alone.
        """
        if self.task.schedule in CHUNKS:
            return self._interleaved(None)
        best, why = self._fastest(self.counts)
        if best is None:
            raise why or PlanError("nothing fits")
        if not self.task.microbatches:
            found = best.schedule.num_microbatches
            best, _ = self._fastest(near_divisors(self.task.batch, found), best)
            assert best is not None, "it is no slower than the best before"
        best = self._scheduled(best.stages, best.num_microbatches)
        return best if self.task.schedule else self._interleaved(best)

    def _fastest(
        self, counts: Sequence[int], best: PlannedPipeline | None = None
    ) -> tuple[PlannedPipeline | None, MeshwrightError | None]:
        """`best` or a faster plan with one of these numbers of microbatches.

        The second result says why the first number that failed did. The numbers with the
        shortest step without bubbles come first, so that most others are not simulated.
        """
        staged: list[tuple[float, int, tuple[PipelineStage, ...]]] = []
        why: MeshwrightError | None = None
        for count in counts:
            try:
                stages = self._stages(count)
            except MeshwrightError as error:
                why = why or error
                continue
            staged.append((bubble_free_s(stages, count), count, stages))
        for seconds, count, stages in sorted(staged, key=lambda each: each[:2]):
            is_over = self.task.is_over()
            if best is not None and (is_over or seconds >= best.step_time_s):
                break
            try:
                plan = self._scheduled(stages, count, with_search=False)
            except MeshwrightError as error:
                why = why or error
                continue
            self.task.on_progress(
                f"{count} microbatches: {len(plan.stages)} stages,"
                f" {plan.step_time_s * 1e3:,.1f} ms with {plan.schedule_name}"
            )
            if best is None or plan.step_time_s < best.step_time_s:
                best = plan
        return best, why

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of microbatches to try."""
        return self.task.microbatches or microbatch_counts(self.task.batch)

    def _interleaved(self, best: PlannedPipeline | None) -> PlannedPipeline:
        """`best`, or a faster plan with several stages on each submesh.

        The result says what was tried. Raises `PlanError` if there is no plan.
        """
        least_s = math.inf if best is None else best.step_time_s
        fastest: dict[str, PlannedPipeline] = {}
        for each in sorted(self._interleavings(), key=lambda each: each.least_s):
            is_over = best is not None and self.task.is_over()
            if each.least_s >= least_s or is_over:
                break
            self._count_tasks(each.num_stages * each.num_microbatches, 2)
            plan = self._with_chunks(each)
            known = fastest.get(each.schedule_name)
            if plan and (known is None or plan.step_time_s < known.step_time_s):
                fastest[each.schedule_name] = plan
                least_s = min(least_s, plan.step_time_s)
        plans = [*filter(None, (best,)), *fastest.values()]
        if not plans:
            raise PlanError(
                f"no stages with the schedule {self.task.schedule!r} fit into memory; use"
                " more devices, a larger batch, or another schedule"
            )
        why = "slower even without bubbles, or too large"
        names = self._chunked_schedules
        tried = [(n, fastest[n].step_time_s if n in fastest else why) for n in names]
        chosen = min(plans, key=lambda plan: plan.step_time_s)
        tried = (*(best.tried if best else ()), *tried)
        return replace(chosen, tried=tried, seconds=time.monotonic() - self.began)

    @property
    def _chunked_schedules(self) -> tuple[str, ...]:
        """The names of schedules with several stages on each submesh to try."""
        only = self.task.schedule
        return tuple(name for name in CHUNKS if only in ("", name))

    def _interleavings(self) -> Iterator[Interleaving]:
        """All ways to put several stages on each of a number of equal submeshes."""
        task, names = self.task, self._chunked_schedules
        most = len(self.starts) if task.most_stages > 1 else 1
        for count in self.counts:
            try:
                options = self.options(count)
            except PlanError:
                continue
            devices = task.machine.num_devices
            yield from interleavings(options, devices, count, most, names)

    def _with_chunks(self, each: Interleaving) -> PlannedPipeline | None:
        """The plan of interleaved stages; `None` if they do not fit into memory."""
        count = each.num_microbatches
        table = self.table_of(each.options, count, each.room(self.task.limit_bytes))
        sliced = even_stages(table.table, each.num_stages)
        if sliced is None:
            return None
        schedule = each.schedule
        tables = [table] * len(sliced)
        stages = self.place(sliced, tables, schedule.placement)
        try:
            return self._plan_of(stages, each.schedule_name, schedule)
        except ScheduleError:
            return None

    def plan(self, num_microbatches: int) -> PlannedPipeline:
        """The fastest plan with this number of microbatches."""
        return self._scheduled(self._stages(num_microbatches), num_microbatches)

    def _stages(self, num_microbatches: int) -> tuple[PipelineStage, ...]:
        """The stages of the fastest pipeline with this number of microbatches."""
        table, num_devices = self.table(num_microbatches), self.task.machine.num_devices
        sliced = slice_stages(table.table, num_devices, num_microbatches)
        return self.place(sliced, [table] * len(sliced))

    def _scheduled(
        self,
        stages: tuple[PipelineStage, ...],
        num_microbatches: int,
        with_search: bool = True,
    ) -> PlannedPipeline:
        """The plan of these stages with their fastest schedule."""
        task, num_tasks = self.task, len(stages) * num_microbatches
        with_search = with_search and len(stages) > 1 and not task.is_over()
        schedule = choose_schedule(
            stages, num_microbatches, task.limit_bytes, task.schedule, with_search
        )
        count = num_evaluations(num_tasks) if with_search else len(SCHEDULES)
        self._count_tasks(num_tasks, count)
        return self._plan_of(stages, *schedule)

    def _count_tasks(self, num_tasks: int, schedules: int) -> None:
        """Count the work of simulated schedules; forward and backward passes are tasks."""
        self.task.meter.count(SCHEDULE, 2 * num_tasks * schedules)

    def table(self, num_microbatches: int) -> OptionTable:
        """Seconds of all possible stages with this number of microbatches."""
        task = self.task
        most = min(task.most_stages, len(self.starts), task.machine.num_devices)
        return self.table_of(
            self.options(num_microbatches),
            num_microbatches,
            StageRoom.of_1f1b(task.limit_bytes, most, num_microbatches),
        )

    def options(self, num_microbatches: int) -> list[StageOption]:
        """All strategies on submeshes that suit this number of microbatches.

        Raises `PlanError` if there are none.
        """
        task = self.task
        microbatch, rest = divmod(task.batch, num_microbatches)
        if rest:
            raise PlanError(
                f"{num_microbatches} microbatches do not divide a batch of {task.batch}"
            )
        options = stage_options(
            self.priced, self.starts, self.sizes, microbatch, task.machine
        )
        if not options:
            raise PlanError(f"no strategy divides a microbatch of {microbatch}")
        return [self.corrected(option) for option in options]

    def table_of(
        self, options: Sequence[StageOption], num_microbatches: int, room: StageRoom
    ) -> OptionTable:
        """Seconds of all possible stages with some options, within some memory."""
        hops = self._hops_s(options)
        return option_table(options, hops, num_microbatches, room)

    def _hops_s(self, options: Sequence[StageOption]) -> Floats:
        """Seconds of a microbatch into each layer, and of its gradient back, [L].

        The submesh is not known yet: the smallest one and the slowest links are assumed.
        """
        machine = self.task.machine
        size = min(option.size for option in options)
        smallest = [option.costs for option in options if option.size == size]
        received = np.min([costs.sent for costs in smallest], axis=0)
        ends = range(size), range(machine.num_devices - size, machine.num_devices)
        hops = [2 * transfer_s(each, *ends, machine) for each in received[1:]]
        return np.array([0.0, *hops])

    def place(
        self,
        sliced: Sequence[SlicedStage],
        tables: Sequence[OptionTable],
        placement: Sequence[int] | None = None,
    ) -> tuple[PipelineStage, ...]:
        """Stages placed on devices, each with the fastest option of its own table.

        placement: submesh of each stage; by default each has its own.
        Raises `PlanError` if a stage has no option (strategy) that fits into memory.
        """
        options = [
            table.option(each, len(sliced) - 1 - index)
            for index, (each, table) in enumerate(zip(sliced, tables, strict=True))
        ]
        placer = StagePlacer(self.step, self.starts, self.task.machine)
        return placer.stages(sliced, options, placement)

    def _plan_of(
        self,
        stages: tuple[PipelineStage, ...],
        schedule_name: str,
        schedule: Schedule,
        tried: Tried = (),
    ) -> PlannedPipeline:
        """The plan of these stages with a schedule.

        Raises `ScheduleError` if the schedule exceeds memory.
        """
        task = self.task
        simulation = run_stages(stages, schedule, task.limit_bytes)
        seconds, bubble = step_s(stages, simulation), simulation.bubble_fraction
        return PlannedPipeline(
            task.name,
            stages,
            schedule,
            figures=PipelineFigures(task.machine.name, seconds, bubble),
            schedule_name=schedule_name,
            limit_bytes=task.limit_bytes,
            tried=tried,
            seconds=time.monotonic() - self.began,
        )
