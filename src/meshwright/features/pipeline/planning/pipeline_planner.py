"""Pipeline planning from a train step to a plan: strategies, stages, a schedule.

Input: the train step, captured at several sizes of the batch, and a machine. Output:
the fastest `PipelinePlan` that fits into memory.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from meshwright.errors import MeshwrightError, PlanError, ScheduleError
from meshwright.features.pipeline.planning.blocks.clustering import cluster
from meshwright.features.pipeline.planning.blocks.step_blocks import StepBlocks
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
from meshwright.features.pipeline.planning.pipeline_plan import (
    PipelineFigures,
    PipelinePlan,
)
from meshwright.features.pipeline.planning.pipeline_stage import (
    PipelineStage,
    run_stages,
    step_s,
)
from meshwright.features.pipeline.planning.pipeline_task import (
    PipelineTask,
    microbatch_counts,
    near_divisors,
    submesh_sizes,
)
from meshwright.features.pipeline.planning.priced_step import price_step
from meshwright.features.pipeline.planning.schedule_choice import Tried, choose_schedule
from meshwright.features.pipeline.planning.stage_costs import StageOption, stage_options
from meshwright.features.pipeline.planning.stage_placement import StagePlacer
from meshwright.features.pipeline.planning.stage_slicing import (
    SlicedStage,
    slice_stages,
)
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.predict.links.transfer import transfer_s
from meshwright.search.arrays import Floats

MOST_LAYERS = 48
"""Largest number of layers of a step; a loop over layers may have more, up to 64."""


class PipelinePlanner:
    """Planner of one train step: the priced strategies, and the layers of the step."""

    def __init__(self, task: PipelineTask) -> None:
        self.task = task
        self.began = time.monotonic()
        self.sizes = task.sizes or submesh_sizes(task.machine)
        self.priced, self.step = price_step(task)
        self.starts = _layer_starts(self.step)

    def best(self) -> PipelinePlan:
        """The fastest plan over all numbers of microbatches to try.

        After all of `counts`, other divisors of the batch near the best are tried.
        """
        if self.task.schedule in CHUNKS:
            return self._interleaved(None)
        plans, why = self._plans(self.counts)
        if not plans:
            raise why or PlanError("nothing fits")
        best = min(plans, key=lambda plan: plan.step_time_s)
        if not self.task.microbatches:
            found = best.schedule.num_microbatches
            plans, _ = self._plans(near_divisors(self.task.batch, found))
        best = min((best, *plans), key=lambda plan: plan.step_time_s)
        return best if self.task.schedule else self._interleaved(best)

    def _plans(
        self, counts: Sequence[int]
    ) -> tuple[list[PipelinePlan], MeshwrightError | None]:
        """The plans for numbers of microbatches, and why the last that failed did."""
        plans: list[PipelinePlan] = []
        why: MeshwrightError | None = None
        for count in counts:
            try:
                plan = self.plan(count)
            except MeshwrightError as error:
                why = error
                continue
            plans.append(plan)
            self.task.on_progress(
                f"{count} microbatches: {len(plan.stages)} stages,"
                f" {plan.step_time_s * 1e3:,.1f} ms with {plan.schedule_name}"
            )
        return plans, why

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of microbatches to try."""
        return self.task.microbatches or microbatch_counts(self.task.batch)

    def _interleaved(self, best: PipelinePlan | None) -> PipelinePlan:
        """`best`, or a faster plan with several stages on each submesh.

        The result says what was tried. Raises `PlanError` if there is no plan.
        """
        least_s = math.inf if best is None else best.step_time_s
        fastest: dict[str, PipelinePlan] = {}
        for each in self._interleavings():
            plan = self._with_chunks(each) if each.least_s < least_s else None
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
        most = min(task.most_stages, len(self.starts))
        for count in self.counts:
            try:
                options = self.options(count)
            except PlanError:
                continue
            devices = task.machine.num_devices
            yield from interleavings(options, devices, count, most, names)

    def _with_chunks(self, each: Interleaving) -> PipelinePlan | None:
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

    def plan(self, num_microbatches: int) -> PipelinePlan:
        """The fastest plan with this number of microbatches."""
        task, table = self.task, self.table(num_microbatches)
        sliced = slice_stages(table.table, task.machine.num_devices, num_microbatches)
        stages = self.place(sliced, [table] * len(sliced))
        schedule = choose_schedule(
            stages, num_microbatches, task.limit_bytes, task.schedule
        )
        return self._plan_of(stages, *schedule)

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
        return options

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
    ) -> PipelinePlan:
        """The plan of these stages with a schedule.

        Raises `ScheduleError` if the schedule exceeds memory.
        """
        task = self.task
        simulation = run_stages(stages, schedule, task.limit_bytes)
        seconds, bubble = step_s(stages, simulation), simulation.bubble_fraction
        return PipelinePlan(
            task.name,
            stages,
            schedule,
            figures=PipelineFigures(task.machine.name, seconds, bubble),
            schedule_name=schedule_name,
            limit_bytes=task.limit_bytes,
            tried=tried,
            seconds=time.monotonic() - self.began,
        )


def _layer_starts(step: StepBlocks) -> tuple[int, ...]:
    """The index of the first block of each layer."""
    blocks = step.blocks
    loops = sum(block.iteration > 0 for block in blocks)
    num = max(min(MOST_LAYERS, len(blocks)), min(loops + 1, 64))
    return cluster([b.flops for b in blocks], [b.incoming_bytes for b in blocks], num)
