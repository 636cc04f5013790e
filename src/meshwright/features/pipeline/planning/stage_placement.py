"""Placement of sliced stages on devices, and the transfers between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.features.pipeline.planning.blocks.step_blocks import StepBlocks
from meshwright.features.pipeline.planning.pipeline_stage import (
    PipelineStage,
    StageChoice,
)
from meshwright.features.pipeline.planning.stage_costs import StageOption
from meshwright.features.pipeline.planning.stage_slicing import SlicedStage
from meshwright.features.pipeline.stages.marks import StagePoint
from meshwright.machine import Machine
from meshwright.search.arrays import Floats


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
        incoming: Floats,
        placement: Sequence[int] | None = None,
    ) -> tuple[PipelineStage, ...]:
        """Stages with the given options (strategies), placed on devices.

        incoming: bytes of a microbatch that enter each layer, [L].
        placement: submesh of each stage; by default each has its own. Stages of one
            submesh have options of one size.
        """
        on = range(len(sliced)) if placement is None else placement
        sizes = dict(zip(on, (option.size for option in options), strict=True))
        submeshes = place_submeshes([sizes[s] for s in sorted(sizes)])
        firsts = [submeshes[s] for s in on]
        send_s = [
            self._send_s(
                firsts[i : i + 2], options[i : i + 2], float(incoming[b.first])
            )
            for i, b in enumerate(sliced[1:])
        ]
        send_s.append(0.0)
        stages: list[PipelineStage] = []
        for number, (each, option) in enumerate(zip(sliced, options, strict=True)):
            costs, strategy = option.costs, option.priced.strategy
            parts = strategy.batch_parts(option.data)
            stage = PipelineStage(
                str(number),
                on[number],
                strategy.mesh(option.data),
                costs.bytes(each.first, each.end, float(incoming[each.first]) / parts),
                costs.times(each.first, each.end),
                once_s=float(costs.once_s[each.end] - costs.once_s[each.first]),
                send_s=send_s[number],
                choice=self._choice(each, option, firsts[number]),
            )
            stages.append(stage)
        return tuple(stages)

    def _send_s(
        self, firsts: Sequence[int], options: Sequence[StageOption], num_bytes: float
    ) -> float:
        """Seconds to send bytes between two submeshes, which start at `firsts`."""
        senders = min(option.size for option in options)
        return hop_s(num_bytes, senders, self._is_near(firsts, options), self.machine)

    def _is_near(self, firsts: Sequence[int], options: Sequence[StageOption]) -> bool:
        """Whether the machine's innermost links join two submeshes (two options)."""
        if not self.machine.levels:
            return True
        group = self.machine.levels[0].largest
        lasts = [f + o.size - 1 for f, o in zip(firsts, options, strict=True)]
        return len({place // group for place in (*firsts, *lasts)}) == 1

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


def hop_s(num_bytes: float, senders: int, is_near: bool, machine: Machine) -> float:
    """Seconds to send `num_bytes` from one submesh to another, each device its part.

    is_near: whether the innermost links of the machine join the submeshes; otherwise
        the outermost links do.
    """
    if not machine.levels:
        return 0.0
    level = 0 if is_near else len(machine.levels) - 1
    link = machine.levels[level]
    group = int(np.prod([each.largest for each in machine.levels[:level]], dtype=int))
    rate = link.link_bytes_per_s
    if link.group_links:
        rate *= link.group_links / max(1, min(group, senders))
    return link.latency_s + num_bytes / senders / rate
