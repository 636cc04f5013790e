"""Costs of every possible stage: layers, a submesh, and a strategy on its devices.

The costs of a stage are sums over its layers. A strategy has been simulated at two
sizes of a device's batch; costs at other sizes are on the line through these two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from meshwright.features.pipeline.planning.blocks.step_blocks import StepPhase
from meshwright.features.pipeline.planning.stage_mesh import (
    IntraStrategy,
    place_stage,
    submachine,
)
from meshwright.features.pipeline.planning.strategy_prices import BlockPrices
from meshwright.features.pipeline.schedules.simulate import StageBytes, StageTimes
from meshwright.machine import Machine
from meshwright.predict.links.collective import COLLECTIVE_S
from meshwright.search.arrays import Floats

BATCHES = (4, 16)
"""Sizes of the batch of one device at which strategies are simulated."""


@dataclass(frozen=True, slots=True)
class PricedStrategy:
    """A strategy with its costs per block at the sizes `BATCHES` of a device's batch."""

    strategy: IntraStrategy
    prices: tuple[BlockPrices, BlockPrices]

    def at(self, batch: float, of: Callable[[BlockPrices], Floats]) -> Floats:
        """One cost of each block for a device's batch of this size, [number of blocks].

        of: function that takes this cost from the prices of all blocks.
        """
        low, high = map(of, self.prices)
        share = (batch - BATCHES[0]) / (BATCHES[1] - BATCHES[0])
        # Below the smaller size, costs shrink at most in proportion to the batch.
        least = min(1.0, batch / BATCHES[0]) * low
        return np.maximum(low + share * (high - low), least)


@dataclass(frozen=True, slots=True)
class LayerCosts:
    """Costs of L layers under a strategy on a submesh, as sums from the first layer on.

    seconds: seconds of one microbatch, by phase of the step, [3, L + 1].
    once_s: seconds once a step, to sum gradients over replicas and to update, [L + 1].
    fixed: bytes that are held all the time, without working memory, [L + 1].
    saved: bytes kept for the backward pass, per microbatch, [L + 1].
    received: bytes of a microbatch that enter each layer on a device, [L]; not a sum.
    sent: the part of them that a device receives from another stage, [L].
    stacked: working memory that grows with the number of layers, in bytes, [L + 1].
    working: other working memory of each layer, in bytes, [L]; not a sum.
    """

    seconds: Floats
    once_s: Floats
    fixed: Floats
    saved: Floats
    received: Floats
    sent: Floats
    stacked: Floats
    working: Floats

    def times(self, first: int, end: int) -> StageTimes:
        """Seconds of the tasks of a stage with layers `first` to `end - 1`."""
        forward, inputs, weights = self.seconds[:, end] - self.seconds[:, first]
        return StageTimes(float(forward), float(inputs), float(weights))

    def bytes(self, first: int, end: int) -> StageBytes:
        """Memory of a stage with layers `first` to `end - 1`."""
        working = max(
            float(self.working[first:end].max()),
            float(self.stacked[end] - self.stacked[first]),
        )
        received = float(self.received[first])
        saved = float(self.saved[end] - self.saved[first]) + received
        state = float(self.fixed[end] - self.fixed[first])
        # Gradients of weights may read all that was saved.
        return StageBytes(state, saved, saved, working)


def layer_costs(
    priced: PricedStrategy,
    starts: Sequence[int],
    data: int,
    batch: float,
    machine: Machine,
) -> LayerCosts:
    """The costs of all layers on a submesh with `data` data-parallel replicas.

    starts: index of the first block of each layer.
    batch: size of the batch of one device.
    machine: the devices of the submesh.
    """
    groups = np.asarray(starts)

    def sums(blocks: Floats) -> Floats:
        return np.concatenate([[0.0], np.cumsum(np.add.reduceat(blocks, groups))])

    per_batch, once_s = _data_seconds(priced, data, batch, machine)
    at = partial(priced.at, batch)
    seconds = [_phase_s(priced, batch, p) + per_batch[p] for p in MICROBATCH_PHASES]
    fixed = at(lambda p: p.state + p.gradients + (p.cut_state + p.cut_gradients) / data)
    return LayerCosts(
        np.stack([sums(each) for each in seconds]),
        sums(once_s + _phase_s(priced, batch, StepPhase.UPDATE)),
        sums(fixed),
        sums(at(lambda p: p.saved)),
        at(lambda p: p.received)[groups],
        at(lambda p: p.sent)[groups],
        sums(at(lambda p: p.stacked)),
        np.maximum.reduceat(at(lambda p: p.working), groups),
    )


MICROBATCH_PHASES = (
    StepPhase.FORWARD,
    StepPhase.INPUT_GRADIENT,
    StepPhase.WEIGHT_GRADIENT,
)
"""The phases of a step that run for each microbatch, not once a step."""


def _phase_s(priced: PricedStrategy, batch: float, phase: StepPhase) -> Floats:
    """Seconds of each block in a phase of the step, [number of blocks]."""
    return priced.at(batch, lambda prices: prices.seconds[phase])


def _data_seconds(
    priced: PricedStrategy, data: int, batch: float, machine: Machine
) -> tuple[dict[StepPhase, Floats], Floats]:
    """Exposed seconds of collectives along the data axis.

    The first result is per microbatch and phase, the second once a step. Collectives of
    a microbatch are hidden behind the computation of their own block and phase. The
    last sums of gradients have nothing to hide behind.
    """
    num_blocks = len(priced.prices[0].state)
    each = {phase: np.zeros(num_blocks) for phase in StepPhase}
    once = np.zeros(num_blocks)
    if data == 1:
        return each, once
    placement = place_stage(priced.strategy.mesh(data), machine)
    for collective in priced.prices[1].collectives:
        site = collective.site
        seconds = collective.runs * COLLECTIVE_S[collective.kind](
            collective.num_bytes, placement.of(collective.axes)
        )
        rows = once if collective.per_step else each[site.phase]
        rows[site.first : site.first + site.count] += seconds
    once = once + each.pop(StepPhase.UPDATE)
    exposed = {
        phase: np.maximum(0.0, seconds - _phase_s(priced, batch, phase))
        for phase, seconds in each.items()
    }
    return exposed, once


@dataclass(frozen=True, slots=True)
class StageOption:
    """A strategy on submeshes of one size, with the costs of each layer.

    size: number of devices of the submesh.
    data: number of data-parallel replicas among them.
    """

    size: int
    data: int
    priced: PricedStrategy
    costs: LayerCosts


def stage_options(
    priced: Sequence[PricedStrategy],
    starts: Sequence[int],
    sizes: Sequence[int],
    microbatch: int,
    machine: Machine,
) -> list[StageOption]:
    """All strategies on all sizes of submeshes that divide a microbatch evenly."""
    options: list[StageOption] = []
    for size in sizes:
        part = submachine(machine, size)
        for each in priced:
            strategy = each.strategy
            data, rest = divmod(size, strategy.model)
            if rest or (data > 1) != strategy.has_data:
                continue
            parts = strategy.batch_parts(data)
            if microbatch % parts:
                continue
            costs = layer_costs(each, starts, data, microbatch / parts, part)
            options.append(StageOption(size, data, each, costs))
    return options


def layer_seconds(option: StageOption, num_microbatches: int) -> Floats:
    """Seconds of each layer for one microbatch, with its part of the update, [L]."""
    costs = option.costs
    each = np.diff(costs.seconds.sum(axis=0))
    return each + np.diff(costs.once_s) / num_microbatches
