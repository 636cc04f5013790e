"""Placement of sliced stages on devices, and the transfers between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshwright.features.pipeline.planning.blocks.step_blocks import StepBlocks
from meshwright.features.pipeline.planning.pipeline_stage import (
    PipelineStage,
    StageChoice,
)
from meshwright.features.pipeline.planning.stage_costs import StageOption
from meshwright.features.pipeline.planning.stage_slicing import SlicedStage
from meshwright.features.pipeline.stages.marks import StagePoint
from meshwright.machine import Machine
from meshwright.predict.links.transfer import busiest_bytes, transfer_s


@dataclass(frozen=True, slots=True)
class StagePlacer:
    """The layers of a step, from which placed stages are made on a machine.

    starts: index of the first block of each layer.
    """

    step: StepBlocks
    starts: Sequence[int]
    machine: Machine

    def stages(
        self,
        sliced: Sequence[SlicedStage],
        options: Sequence[StageOption],
        placement: Sequence[int] | None = None,
    ) -> tuple[PipelineStage, ...]:
        """Stages with the given options (strategies), placed on devices.

        placement: submesh of each stage; by default each has its own. Stages of one
            submesh have options of one size.
        """
        on = range(len(sliced)) if placement is None else placement
        sizes = dict(zip(on, (option.size for option in options), strict=True))
        submeshes = place_submeshes([sizes[s] for s in sorted(sizes)])
        firsts = [submeshes[s] for s in on]
        devices = [
            range(first, first + option.size)
            for first, option in zip(firsts, options, strict=True)
        ]
        send_s = [
            self._send_s(devices[i : i + 2], options[i : i + 2], later.first)
            for i, later in enumerate(sliced[1:])
        ]
        send_s.append(0.0)
        stages: list[PipelineStage] = []
        for number, (each, option) in enumerate(zip(sliced, options, strict=True)):
            costs, strategy = option.costs, option.priced.strategy
            stage = PipelineStage(
                str(number),
                on[number],
                strategy.mesh(option.data),
                costs.bytes(each.first, each.end),
                costs.times(each.first, each.end),
                once_s=float(costs.once_s[each.end] - costs.once_s[each.first]),
                send_s=send_s[number],
                choice=self._choice(each, option, firsts[number]),
            )
            stages.append(stage)
        return tuple(stages)

    def _send_s(
        self, devices: Sequence[range], options: Sequence[StageOption], layer: int
    ) -> float:
        """Seconds to send a microbatch between two stages, or its gradient back.

        The slower direction counts.
        devices, options: of both stages. layer: the first of the later stage.
        """
        (before, after), (first, second) = devices, options
        there, back = (
            busiest_bytes(float(to.costs.sent[layer]), by.size, to.size)
            for by, to in ((first, second), (second, first))
        )
        return transfer_s(max(there, back), before, after, self.machine)

    def _choice(
        self, each: SlicedStage, option: StageOption, first_device: int
    ) -> StageChoice:
        block = self.step.blocks[self.starts[each.first]]
        strategy = option.priced.strategy
        return StageChoice(
            StagePoint(block.op, block.iteration),
            (each.first, each.end),
            first_device,
            strategy.name,
            strategy.tactics,
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
