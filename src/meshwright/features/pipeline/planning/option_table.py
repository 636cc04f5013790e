"""The fastest strategy for each possible stage that fits into memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from meshwright.errors import PlanError
from meshwright.features.pipeline.planning.stage_costs import StageOption, layer_seconds
from meshwright.features.pipeline.planning.stage_slicing import SlicedStage, StageTable
from meshwright.search.arrays import Floats, Ints


@dataclass(frozen=True, slots=True)
class OptionTable:
    """The table of all possible stages, and the option behind each of its entries.

    chosen: index in `options` of each entry's option, [M, S, L + 1, L + 1] as in
        `StageTable.seconds`.
    """

    table: StageTable
    options: tuple[StageOption, ...]
    chosen: Ints

    def option(self, stage: SlicedStage, later: int) -> StageOption:
        """The option of a stage with `later` stages after it.

        Raises `PlanError` if no option fits into memory.
        """
        place = stage.size, later, stage.first, stage.end
        if not np.isfinite(self.table.seconds[place]):
            raise PlanError(
                f"layers {stage.first} to {stage.end - 1} do not fit into the memory of"
                f" {self.table.sizes[stage.size]} devices"
            )
        return self.options[int(self.chosen[place])]


@dataclass(frozen=True, slots=True)
class StageRoom:
    """The memory that a stage has to fit into.

    limit_bytes: bytes of a device's memory.
    alive: microbatches whose activations a submesh keeps, by the number of stages after
        its stage, [S].
    chunks: number of stages on each submesh, which are taken to be alike.
    """

    limit_bytes: float
    alive: tuple[int, ...]
    chunks: int = 1

    @classmethod
    def of_1f1b(
        cls, limit_bytes: float, most_stages: int, num_microbatches: int
    ) -> StageRoom:
        """The room under 1F1B: a stage with s later stages keeps s + 1 microbatches."""
        alive = (min(s + 1, num_microbatches) for s in range(most_stages))
        return cls(limit_bytes, tuple(alive))


def option_table(
    options: Sequence[StageOption],
    hop_s: Floats,
    num_microbatches: int,
    room: StageRoom,
) -> OptionTable:
    """The fastest option for each possible stage that fits into memory.

    hop_s: seconds to send a microbatch into each layer and its gradient back, [L].
    """
    sizes = tuple(dict.fromkeys(option.size for option in options))
    layers = len(hop_s)
    shape = (len(sizes), len(room.alive), layers + 1, layers + 1)
    seconds, chosen = np.full(shape, np.inf), np.zeros(shape, np.int64)
    alive = np.array(room.alive)
    for index, option in enumerate(options):
        own = _range_seconds(option, num_microbatches)
        fixed, working, saved = _range_bytes(option)
        needed = room.chunks * fixed + working + alive[:, None, None] * saved
        own = np.where(needed <= room.limit_bytes, own, np.inf)
        row = sizes.index(option.size)
        better = own < seconds[row]
        seconds[row] = np.where(better, own, seconds[row])
        chosen[row] = np.where(better, index, chosen[row])
    return OptionTable(StageTable(sizes, seconds, hop_s), tuple(options), chosen)


def _range_seconds(option: StageOption, num_microbatches: int) -> Floats:
    """Seconds of all ranges of layers under one option, [L + 1, L + 1].

    Infinite for empty ranges.
    """
    sums = np.append(0.0, np.cumsum(layer_seconds(option, num_microbatches)))
    firsts, ends = np.indices((len(sums),) * 2)
    return np.where(firsts < ends, _spans(sums), np.inf)


def _range_bytes(option: StageOption) -> tuple[Floats, Floats, Floats]:
    """Bytes of all ranges of layers under one option, each an array [L + 1, L + 1].

    They are held all the time, while a task runs, and per microbatch.
    """
    costs = option.costs
    layers = len(costs.working)
    largest = np.zeros((layers + 1, layers + 1))
    for first in range(layers):
        largest[first, first + 1 :] = np.maximum.accumulate(costs.working[first:])
    working = np.maximum(largest, _spans(costs.stacked))
    received = np.append(costs.received, 0.0)[:, None]
    return _spans(costs.fixed), working, _spans(costs.saved) + received


def _spans(sums: Floats) -> Floats:
    return sums[None, :] - sums[:, None]
