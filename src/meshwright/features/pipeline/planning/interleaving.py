"""Pipelines with several stages on each submesh, for interleaved 1F1B and DualPipeV.

All submeshes are alike. Bubbles shrink with the number of stages on a submesh, while values
are sent more often, and more microbatches are alive. In array shapes L is the number of
layers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from meshwright.features.pipeline.planning.option_table import StageRoom
from meshwright.features.pipeline.planning.stage_costs import StageOption, layer_seconds
from meshwright.features.pipeline.planning.stage_slicing import SlicedStage, StageTable
from meshwright.features.pipeline.schedules.dual_pipe import dual_pipe_v
from meshwright.features.pipeline.schedules.generators import interleaved
from meshwright.features.pipeline.schedules.schedule import Schedule
from meshwright.features.pipeline.schedules.verify import peak_activations

CHUNKS: Mapping[str, tuple[int, ...]] = {
    "interleaved": (2, 3, 4, 8),
    "dualpipev": (2,),
}
"""By name of a schedule: the numbers of stages on a submesh to try.

With 8, 16 submeshes have a layer each of 128.
"""


@dataclass(frozen=True)
class Interleaving:
    """A number of equal submeshes, of stages on each, and of microbatches.

    schedule_name: a name in `CHUNKS`.
    options: strategies on one mesh of a submesh's size.
    """

    schedule_name: str
    options: tuple[StageOption, ...]
    num_submeshes: int
    chunks: int
    num_microbatches: int

    @property
    def num_stages(self) -> int:
        """Number of stages on all submeshes together."""
        return self.num_submeshes * self.chunks

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule of all microbatches."""
        if self.schedule_name == "dualpipev":
            return dual_pipe_v(self.num_submeshes, self.num_microbatches)
        return interleaved(self.num_submeshes, self.chunks, self.num_microbatches)

    @property
    def is_possible(self) -> bool:
        """Whether the schedule exists for these numbers."""
        if self.schedule_name == "dualpipev":
            return self.num_microbatches >= 2 * self.num_submeshes
        return self.num_microbatches % self.num_submeshes == 0

    @cached_property
    def least_s(self) -> float:
        """Seconds of a step without bubbles, a lower bound."""
        layers = [layer_seconds(o, self.num_microbatches) for o in self.options]
        whole = np.min(layers, axis=0).sum()
        return float(whole) * self.num_microbatches / self.num_submeshes

    def room(self, limit_bytes: float) -> StageRoom:
        """The memory that each stage has to fit into, together with those beside it."""
        schedule = self.schedule
        peaks = peak_activations(schedule)
        alive = tuple(peaks[submesh] for submesh in reversed(schedule.placement))
        return StageRoom(limit_bytes, alive, self.chunks)


def interleavings(
    options: Sequence[StageOption],
    num_devices: int,
    num_microbatches: int,
    most_stages: int,
    names: Collection[str],
) -> Iterator[Interleaving]:
    """All ways to interleave stages with some strategies on a number of devices.

    names: the schedules to try.
    """
    by_mesh: dict[tuple[int, int, int], list[StageOption]] = {}
    for each in options:
        mesh = each.size, each.data, each.priced.strategy.model
        by_mesh.setdefault(mesh, []).append(each)
    for (size, _, _), on_mesh in by_mesh.items():
        count, rest = divmod(num_devices, size)
        if rest or count < 2:
            continue
        for name in names:
            for chunks in CHUNKS[name]:
                found = Interleaving(
                    name, tuple(on_mesh), count, chunks, num_microbatches
                )
                if found.is_possible and found.num_stages <= most_stages:
                    yield found


def even_stages(table: StageTable, num_stages: int) -> tuple[SlicedStage, ...] | None:
    """The cut of all layers into stages of which the slowest is as fast as possible.

    `None` if no cut fits into memory.
    table: seconds of all possible stages on one size of a submesh.
    """
    cost = np.full(table.num_layers + 1, np.inf)
    cost[0] = 0.0
    starts: list[list[int]] = []
    for stage in range(num_stages):
        own = table.seconds[0, num_stages - 1 - stage]
        slowest = np.maximum(cost[:, None], own)
        starts.append(slowest.argmin(axis=0).tolist())
        cost = slowest.min(axis=0)
    if not np.isfinite(cost[-1]):
        return None
    ends = [table.num_layers]
    for each in reversed(starts):
        ends.append(each[ends[-1]])
    return tuple(SlicedStage(a, b, 0) for a, b in pairwise(reversed(ends)))
