"""Pipeline planning from a train step to a plan: strategies, stages, a schedule.

Input: the train step, captured at several sizes of the batch, and a machine. Output:
the fastest `PipelinePlan` that fits into memory.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import copy

import numpy as np

from meshwright.errors import MeshwrightError, PlanError
from meshwright.partitioner.propagate import Graph
from meshwright.planner.pipeline.blocks.clustering import cluster
from meshwright.planner.pipeline.blocks.step_blocks import StepBlocks
from meshwright.planner.pipeline.intra_strategies import intra_strategies, largest_model
from meshwright.planner.pipeline.pipeline_plan import PipelinePlan, PipelineStage
from meshwright.planner.pipeline.pipeline_task import (
    PipelineTask,
    microbatch_counts,
    submesh_sizes,
)
from meshwright.planner.pipeline.schedule_choice import choose_schedule
from meshwright.planner.pipeline.slicing import SlicedStage, slice_stages
from meshwright.planner.pipeline.stage_costs import (
    OptionTable,
    PricedStrategy,
    StageOption,
    StageRoom,
    option_table,
    stage_options,
)
from meshwright.planner.pipeline.stage_mesh import IntraStrategy
from meshwright.planner.pipeline.stage_placement import StagePlacer, hop_s
from meshwright.planner.pipeline.strategy_prices import (
    BlockPrices,
    price_blocks,
)
from meshwright.program.capture import Captured
from meshwright.program.records import paused_collector
from meshwright.search.arrays import Floats

BATCHES = (4, 16)
"""Sizes of the batch of one device at which strategies are simulated."""

MOST_LAYERS = 48
"""Largest number of layers of a step; a loop over layers may have more, up to 64."""


class PipelinePlanner:
    """Planner of one train step: the priced strategies, and the layers of the step."""

    def __init__(self, task: PipelineTask) -> None:
        self.task = task
        self.began = time.monotonic()
        self.captured: dict[int, tuple[Captured, StepBlocks, Graph]] = {}
        self.sizes = task.sizes or submesh_sizes(task.machine)
        self.priced = self._price_all()
        _, self.step, _ = self.captured[max(self.captured)]
        self.batch = max(self.captured)
        self.starts = self._layer_starts()

    # -- prices -------------------------------------------------------------------------

    def _capture(self, batch: int) -> tuple[Captured, StepBlocks, Graph]:
        """The step captured with a batch of this size, its blocks, and its graph."""
        if batch not in self.captured:
            captured = self.task.capture_fn(batch)
            graph = Graph(captured.program, captured.ties)
            self.captured[batch] = captured, StepBlocks.of(captured), graph
        return self.captured[batch]

    @paused_collector()
    def _price_all(self) -> list[PricedStrategy]:
        """Price all strategies that suit the program, at two local batch sizes."""
        task = self.task
        found: list[PricedStrategy] = []
        refused: list[str] = []
        for strategy in task.strategies or intra_strategies(task.machine):
            parts = strategy.batch_parts(2)
            if strategy.mesh(2).num_devices > task.machine.num_devices:
                continue
            try:
                low, high = (self._price(strategy, batch * parts) for batch in BATCHES)
            except MeshwrightError as error:
                refused.append(f"{strategy.name}: {error}")
                continue
            found.append(PricedStrategy(strategy, BATCHES, (low, high)))
        if not found:
            raise PlanError(
                f"no strategy fits this step; for example, {refused[0] if refused else ''}"
            )
        task.on_progress(f"priced {len(found)} strategies")
        return found

    def _price(self, strategy: IntraStrategy, batch: int) -> BlockPrices:
        captured, step, graph = self._capture(batch)
        return price_blocks(captured, step, strategy, self.task.machine, graph)

    def _layer_starts(self) -> tuple[int, ...]:
        """The index of the first block of each layer."""
        blocks = self.step.blocks
        loops = sum(block.iteration > 0 for block in blocks)
        num = max(min(MOST_LAYERS, len(blocks)), min(loops + 1, 64))
        return cluster(
            [b.flops for b in blocks], [b.incoming_bytes for b in blocks], num
        )

    # -- plans --------------------------------------------------------------------------

    def best(self) -> PipelinePlan:
        """The fastest plan over all numbers of microbatches to try."""
        task = self.task
        plans: list[PipelinePlan] = []
        why: MeshwrightError | None = None
        for count in task.microbatches or microbatch_counts(task.batch):
            try:
                plan = self.plan(count)
            except MeshwrightError as error:
                why = error
                continue
            plans.append(plan)
            task.on_progress(
                f"{count} microbatches: {len(plan.stages)} stages,"
                f" {plan.step_time_s * 1e3:,.1f} ms with {plan.schedule_name}"
            )
        if not plans:
            raise why or PlanError("nothing fits")
        return min(plans, key=lambda plan: plan.step_time_s)

    def plan(self, num_microbatches: int) -> PipelinePlan:
        """The fastest plan with this number of microbatches."""
        table = self.table(num_microbatches)
        sliced = slice_stages(
            table.table, self.task.machine.num_devices, num_microbatches
        )
        return self.finish(
            self.stages(table, sliced, num_microbatches), num_microbatches
        )

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
        size = self.task.batch // num_microbatches
        hops = self.hops(size)
        return option_table(options, self.incoming(size), hops, num_microbatches, room)

    def hops(self, microbatch: int) -> Floats:
        """Seconds to send a microbatch into each layer, and its gradient back.

        The submesh is not known yet: the smallest one and the slowest links are
        assumed.
        """
        machine, senders = self.task.machine, min(self.sizes)
        is_near = machine.num_devices <= largest_model(machine)
        each = self.incoming(microbatch)
        return np.array([2 * hop_s(size, senders, is_near, machine) for size in each])

    def limited(self, task: PipelineTask, sizes: tuple[int, ...]) -> PipelinePlanner:
        """A copy of this planner with other options and submesh sizes.

        Its prices stay the same.
        """
        other = copy(self)
        other.task, other.sizes = task, sizes
        return other

    def incoming(self, microbatch: int) -> Floats:
        """Bytes of a microbatch that enter each layer from the layers before it."""
        scale = microbatch / self.batch
        return np.array(
            [
                0.0,
                *(self.step.blocks[s].incoming_bytes * scale for s in self.starts[1:]),
            ]
        )

    def stages(
        self, table: OptionTable, sliced: Sequence[SlicedStage], num_microbatches: int
    ) -> tuple[PipelineStage, ...]:
        """The stages of a plan, placed on devices; all use one table of times."""
        return self.place(sliced, [table] * len(sliced), num_microbatches)

    def place(
        self,
        sliced: Sequence[SlicedStage],
        tables: Sequence[OptionTable],
        num_microbatches: int,
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
        incoming = self.incoming(self.task.batch // num_microbatches)
        return placer.stages(sliced, options, incoming, placement)

    def finish(
        self, stages: tuple[PipelineStage, ...], num_microbatches: int
    ) -> PipelinePlan:
        """The plan of these stages with the fastest schedule that fits into memory."""
        task = self.task
        chosen = choose_schedule(stages, num_microbatches, task.limit_bytes)
        return PipelinePlan(
            task.name,
            task.machine.name,
            task.machine.num_devices,
            task.limit_bytes,
            self.step.forward_end,
            stages,
            chosen.name,
            chosen.schedule,
            chosen.tried,
            time.monotonic() - self.began,
        )
