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
from meshwright.planner.pipeline.clustering import cluster
from meshwright.planner.pipeline.intra_strategies import intra_strategies, largest_model
from meshwright.planner.pipeline.pipeline_plan import (
    CutPoint,
    PipelinePlan,
    PipelineStage,
)
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
    hop_seconds,
    option_table,
    stage_options,
)
from meshwright.planner.pipeline.stage_mesh import IntraStrategy
from meshwright.planner.pipeline.step_blocks import StepBlocks
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
        return option_table(
            options, self.incoming(microbatch), self.hops(microbatch), num_microbatches,
            min(task.most_stages, len(self.starts), task.machine.num_devices),
            task.limit_bytes,
        )  # fmt: skip

    def hops(self, microbatch: int) -> Floats:
        """Seconds to send a microbatch into each layer, and its gradient back.

        The submesh is not known yet: the smallest one and the slowest links are
        assumed.
        """
        machine, senders = self.task.machine, min(self.sizes)
        is_near = machine.num_devices <= largest_model(machine)
        each = self.incoming(microbatch)
        return np.array([2 * self._hop_s(size, senders, is_near) for size in each])

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

    def _hop_s(self, num_bytes: float, num_senders: int, is_near: bool) -> float:
        machine = self.task.machine
        if not machine.levels:
            return 0.0
        level = 0 if is_near else len(machine.levels) - 1
        return hop_seconds(num_bytes, num_senders, machine, level)

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
    ) -> tuple[PipelineStage, ...]:
        """Stages placed on devices, each with the fastest option of its own table.

        Raises `PlanError` if a stage has no option (strategy) that fits into memory.
        """
        incoming = self.incoming(self.task.batch // num_microbatches)
        options = [
            table.option(each, len(sliced) - 1 - index)
            for index, (each, table) in enumerate(zip(sliced, tables, strict=True))
        ]
        firsts = place_submeshes([option.size for option in options])
        found: list[PipelineStage] = []
        for index, (each, option) in enumerate(zip(sliced, options, strict=True)):
            send_s = 0.0
            if index + 1 < len(sliced):
                pair = slice(index, index + 2)
                near = self._is_near(firsts[pair], options[pair])
                senders = min(option.size, options[index + 1].size)
                send_s = self._hop_s(float(incoming[each.end]), senders, near)
            brought = float(incoming[each.first])
            found.append(self._stage(each, option, firsts[index], brought, send_s))
        return tuple(found)

    def _is_near(self, firsts: Sequence[int], options: Sequence[StageOption]) -> bool:
        """Whether the machine's innermost links join two submeshes (two options)."""
        group = self.task.machine.levels[0].largest
        lasts = [f + o.size - 1 for f, o in zip(firsts, options, strict=True)]
        return len({place // group for place in (*firsts, *lasts)}) == 1

    def _stage(
        self,
        each: SlicedStage,
        option: StageOption,
        first_device: int,
        incoming: float,
        send_s: float,
    ) -> PipelineStage:
        block = self.step.blocks[self.starts[each.first]]
        strategy, costs = option.priced.strategy, option.costs
        parts = strategy.batch_parts(option.data)
        once = float(costs.once_s[each.end] - costs.once_s[each.first])
        return PipelineStage(
            CutPoint(block.op, block.iteration),
            (each.first, each.end),
            first_device,
            strategy.mesh(option.data),
            strategy.name,
            strategy.tactics,
            costs.times(each.first, each.end),
            once,
            costs.bytes(each.first, each.end, incoming / parts),
            send_s,
        )

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


def place_submeshes(sizes: Sequence[int]) -> list[int]:
    """The number of the first device of each submesh; larger submeshes come first.

    With sizes that are powers of two, none is then split over more groups than need be.
    """
    order = sorted(range(len(sizes)), key=lambda index: -sizes[index])
    firsts = [0] * len(sizes)
    free = 0
    for index in order:
        firsts[index] = free
        free += sizes[index]
    return firsts
