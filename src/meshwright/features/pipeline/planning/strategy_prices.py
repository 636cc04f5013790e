"""Time and memory of blocks under an intra-operator strategy, from one simulated step.

The whole step of one microbatch is partitioned by the strategy and simulated. The time
of each kernel and the bytes of each value are then divided among the blocks of its op.
So blocks that repeat, as iterations of a loop over layers, are simulated once. The step
is simulated on two data-parallel replicas and priced on any number. So two kinds of
cost that depend on the size of the data axis are kept apart: collectives along it, and
state that it cuts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from meshwright.features.pipeline.planning.blocks.step_blocks import (
    BACKWARD,
    LATE,
    OpSite,
    StepBlocks,
    StepPhase,
)
from meshwright.features.pipeline.planning.blocks.update_bytes import update_bytes
from meshwright.features.pipeline.planning.stage_mesh import (
    DATA,
    IntraStrategy,
    place_stage,
    submachine,
)
from meshwright.features.pipeline.stages.lowered_step import LEAST_PARTED
from meshwright.machine import Machine
from meshwright.partitioner.decide import Decided, decide
from meshwright.partitioner.lower import Gather
from meshwright.partitioner.propagate import Graph, user_axes
from meshwright.planner.prices.value_roles import Role, roles_of
from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.predict.estimate import Estimate, estimate
from meshwright.predict.simulate.timeline import (
    Span,
    Timeline,
    collective_overlaps,
    kernel_runs,
)
from meshwright.program.analysis.live_ranges import live_ranges, peak_bytes
from meshwright.program.capture import Captured
from meshwright.program.ir import Value, num_bytes
from meshwright.search.arrays import Floats


@dataclass(frozen=True, slots=True)
class DataCollective:
    """A collective along the data axis, whose cost depends on the number of replicas.

    num_bytes: size as the functions of `COLLECTIVE_S` take it.
    runs: number of executions for each block.
    site: blocks and phase to which it belongs.
    per_step: whether it runs once a step, and not for each microbatch.
    """

    kind: str
    axes: tuple[str, ...]
    num_bytes: float
    runs: float
    site: OpSite
    per_step: bool


@dataclass(slots=True)
class BlockPrices:
    """Time and memory of N blocks under a strategy, for one size of a device's batch.

    Each array is [N].
    seconds: seconds by phase of the step, without collectives along the data axis.
    state, cut_state: bytes of weights and optimizer state that the data axis does not
        cut; and of those that it cuts, as if there were one replica.
    gradients, cut_gradients: bytes of gradients that microbatches accumulate, likewise.
    received: bytes that enter the block if a stage begins there, per microbatch.
    sent: the part of them that each device receives from another stage.
    saved: bytes kept for the backward pass, per microbatch.
    working: largest bytes besides these while an op of the block runs.
    stacked: block's share of such bytes while an op runs on arrays of all layers of a
        loop.
    """

    seconds: dict[StepPhase, Floats]
    state: Floats
    cut_state: Floats
    gradients: Floats
    cut_gradients: Floats
    received: Floats
    sent: Floats
    saved: Floats
    working: Floats
    stacked: Floats
    collectives: list[DataCollective] = field(
        default_factory=list[DataCollective], kw_only=True
    )

    @classmethod
    def zeros(cls, num_blocks: int) -> BlockPrices:
        """Prices of blocks that take no time and no memory."""
        phases = {phase: np.zeros(num_blocks) for phase in StepPhase}
        return cls(phases, *np.zeros((9, num_blocks)))


def price_blocks(
    captured: Captured,
    step: StepBlocks,
    strategy: IntraStrategy,
    machine: Machine,
    graph: Graph | None = None,
) -> BlockPrices:
    """The time and memory of a step's blocks under a strategy, from a simulation.

    Raises an error of the strategy's tactics if they do not suit the program.
    captured: step of one microbatch for two replicas (one, without a data axis).
    machine: machine of which a small part is simulated.
    graph: graph of the captured program, if it is known.
    """
    mesh = strategy.mesh(2)
    decided = decide(captured, mesh, strategy.tactics, Gather.SHARED, graph)
    part = submachine(machine, mesh.num_devices)
    placement = place_stage(decided.lowered.mesh, part)
    simulated = estimate(decided, part, donate_state=True, placement=placement)
    return _PriceReader(step, decided, simulated).read()


class _PriceReader:
    """Divides time and memory of one simulated step among its blocks."""

    def __init__(self, step: StepBlocks, decided: Decided, found: Estimate) -> None:
        self.step, self.decided, self.found = step, decided, found
        self.prices = BlockPrices.zeros(len(step.blocks))
        self.size = found.layouts.size
        self.roles = roles_of(found.program)
        self.last = OpSite(StepPhase.FORWARD, 0, 1)
        self.exposed = {
            fusion.root: exposed
            for fusion, exposed, _ in collective_overlaps(found.timeline)
        }

    def read(self) -> BlockPrices:
        """Collect the time and memory of all blocks."""
        for span, times in kernel_runs(self.found.timeline):
            site = self._site(span.fusion)
            self._add(
                self.prices.seconds[site.phase],
                site,
                times * (span.end_s - span.start_s),
            )
        for span, times in _collectives(self.found.timeline):
            self._read_collective(span, times)
        self._read_state()
        self._read_received()
        self._read_gradients()
        self._read_values()
        return self.prices

    def _site(self, fusion: Fusion) -> OpSite:
        """The blocks and phase of a fusion's op.

        An op that a compiler added has those of the op before it.
        """
        op = fusion.root
        op = self.found.origins.get(op, op)
        op = self.decided.lowered.lowered_from.get(op, op)
        self.last = self.step.sites.get(op, self.last)
        return self.last

    @staticmethod
    def _add(array: Floats, site: OpSite, amount: float) -> None:
        array[site.first : site.first + site.count] += amount / site.count

    def _read_collective(self, span: Span, times: int) -> None:
        root, site = span.fusion.root, self._site(span.fusion)
        axes: tuple[str, ...] = user_axes(root.params["axes"])  # pyright: ignore[reportArgumentType]
        if DATA not in axes:
            seconds = self.exposed[root]
            self._add(self.prices.seconds[site.phase], site, seconds)
            return
        values = [v for v in root.operands if isinstance(v, Value)]
        role = self.roles.get(values[0]) if values else None
        is_gather = root.kind == "all_gather"
        per_step = root.kind == "all_reduce" and role in LATE
        per_step = per_step or (is_gather and role is Role.UPDATE)
        is_inner = times > 1
        self.prices.collectives.append(
            DataCollective(
                root.kind,
                axes,
                span.num_bytes if is_inner else span.num_bytes / site.count,
                times / site.count if is_inner else 1.0,
                site,
                per_step or site.phase is StepPhase.UPDATE,
            )
        )

    # -- bytes --------------------------------------------------------------------------

    def _read_state(self) -> None:
        """Add the bytes of weights and optimizer state to the blocks that use them.

        If several blocks do, the first counts.
        """
        lowered = self.decided.lowered
        program = self.step.program
        first: dict[Value, OpSite] = {}
        for op in program.ops:
            for value in op.operands:
                if isinstance(value, Value):
                    first.setdefault(value, self.step.sites[op])
        ties = set(self.decided.captured.ties.values())
        for position, (value, local, sharding) in enumerate(
            zip(program.inputs, self.found.program.inputs, lowered.inputs, strict=True)
        ):
            if position not in ties or value not in first:
                continue
            is_cut = DATA in user_axes(tuple(sharding.axes))
            rows = self.prices.cut_state if is_cut else self.prices.state
            size = self.size(local) * (2 if is_cut else 1)
            self._add(rows, first[value], size)

    def _read_received(self) -> None:
        """Add the bytes of the values that enter each block, as they are stored.

        Devices that would all receive the same large value receive a part of it each.
        """
        num_devices = self.decided.lowered.mesh.num_devices
        for number, block in enumerate(self.step.blocks):
            for value in block.incoming:
                whole = num_bytes(value)
                own = whole / self._parts(value)
                self.prices.received[number] += own
                part = own if own < LEAST_PARTED else whole / num_devices
                self.prices.sent[number] += part

    def _parts(self, value: Value) -> int:
        """The number of parts into which a value is cut where it is stored."""
        lowered = self.decided.lowered
        sharding = lowered.stored.get(value)
        dims = () if sharding is None else sharding.dims
        return math.prod(lowered.mesh.size(axes) for axes in dims)

    def _read_gradients(self) -> None:
        """Add the bytes of gradients to the blocks that compute them.

        A gradient is a value of the backward pass that the update reads.
        """
        sites, lowered = self.step.sites, self.decided.lowered
        update = {
            value
            for op in self.step.program.ops
            if sites[op].phase is StepPhase.UPDATE
            for value in op.operands
        }
        for op in self.step.program.ops:
            site = sites[op]
            if site.phase not in BACKWARD:
                continue
            for value in (r for r in op.results if r in update):
                split = lowered.stored[value].dims
                is_cut = any(DATA in user_axes(axes) for axes in split)
                size = num_bytes(value) / self._parts(value) * (2 if is_cut else 1)
                prices = self.prices
                rows = prices.cut_gradients if is_cut else prices.gradients
                self._add(rows, site, size)

    def _read_values(self) -> None:
        """Add the bytes that the forward pass saves, and the working memory."""
        fusions = self.found.fusions
        sites = [self._site(fusion) for fusion in fusions]
        lives = live_ranges((fusion.reads, fusion.writes) for fusion in fusions)
        curve = self.found.memory.curve
        saved, gradients = np.zeros((2, len(fusions)))
        total = 0.0
        for value, start in lives.definitions.items():
            site, end = sites[start], lives.end(value)
            size, phase = self.size(value), sites[end].phase
            if site.phase is StepPhase.FORWARD and phase in BACKWARD:
                self._add(self.prices.saved, site, size)
                saved[start : end + 1] += size
            elif site.phase in BACKWARD and phase is StepPhase.UPDATE:
                gradients[start : end + 1] += size
                total += size
        is_update = np.array([site.phase is StepPhase.UPDATE for site in sites])
        # A stage keeps room for its gradients, so that the update may use what it has
        # freed of them.
        resident = float(curve[0]) + saved + np.where(is_update, total, gradients)
        working = np.maximum(0.0, np.array(curve[1:], float) - resident)
        of_update = np.where(is_update, working, 0.0)
        prices = self.prices
        found = update_bytes(lives, sites, self.size, of_update, len(prices.stacked))
        for rows, bytes_ in zip((prices.stacked, prices.working), found, strict=True):
            np.maximum(rows, bytes_, out=rows)
        for fusion, site, size in zip(fusions, sites, working, strict=True):
            if site.phase is StepPhase.UPDATE:
                continue
            own = slice(site.first, site.first + site.count)
            inner = float(size) if site.count == 1 else _body_bytes(fusion)
            for rows, part in (
                (self.prices.working, min(float(size), inner)),
                (self.prices.stacked, max(0.0, float(size) - inner) / site.count),
            ):
                np.maximum(rows[own], part, out=rows[own])


def _body_bytes(fusion: Fusion) -> float:
    """Peak bytes of one iteration of a loop, without fusion; 0 if the op is no loop."""
    bodies = fusion.root.bodies
    sizes = [peak_bytes(body, range(len(body.inputs))) for body in bodies]
    return float(max(sizes, default=0))


def _collectives(timeline: Timeline, times: int = 1) -> Iterator[tuple[Span, int]]:
    """Spans of collectives in a simulated step, and how often each is executed."""
    for span in timeline.spans:
        if span.inner is not None:
            yield from _collectives(span.inner, times * span.repeats)
        elif span.fusion.kind is FusionKind.COLLECTIVE:
            yield span, times
