"""Prices of all intra-operator strategies for one train step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from meshwright.errors import MeshwrightError, PlanError
from meshwright.features.pipeline.planning.blocks.step_blocks import StepBlocks
from meshwright.features.pipeline.planning.intra_strategies import intra_strategies
from meshwright.features.pipeline.planning.pipeline_task import PRICE, PipelineTask
from meshwright.features.pipeline.planning.stage_costs import BATCHES, PricedStrategy
from meshwright.features.pipeline.planning.stage_mesh import DATA, IntraStrategy
from meshwright.features.pipeline.planning.strategy_prices import (
    BlockPrices,
    price_blocks,
)
from meshwright.partitioner.propagate import Graph
from meshwright.partitioner.tactics import data_parallel
from meshwright.program.capture import Captured
from meshwright.program.records import paused_collector

_PRICING = 0.6
"""Share of the time at which pricing has to end."""


@paused_collector()
def price_step(task: PipelineTask) -> tuple[list[PricedStrategy], StepBlocks]:
    """The strategies that suit a train step, priced at two sizes of a device's batch.

    The result is these strategies, and the blocks of the step captured with a large batch.
    """
    captured: dict[int, tuple[Captured, StepBlocks, Graph]] = {}

    def price(strategy: IntraStrategy, batch: int) -> BlockPrices:
        if batch not in captured:
            found = task.capture_fn(batch)
            graph = Graph(found.program, found.ties)
            captured[batch] = found, StepBlocks.of(found), graph
        step, blocks, graph = captured[batch]
        task.meter.count(PRICE, len(graph.nodes))
        return price_blocks(step, blocks, strategy, task.machine, graph)

    found: list[PricedStrategy] = []
    refused: list[str] = []
    for strategy in intra_strategies(task.machine):
        if found and task.is_over(_PRICING):
            task.on_progress(f"no time to price {strategy.name} and later strategies")
            break
        parts = strategy.batch_parts(2)
        if strategy.mesh(2).num_devices > task.machine.num_devices:
            continue
        try:
            low, high = (price(strategy, batch * parts) for batch in BATCHES)
        except MeshwrightError as error:
            refused.append(f"{strategy.name}: {error}")
            continue
        priced = PricedStrategy(strategy, (low, high))
        found.append(_without_reductions(priced, found))
    if not found:
        raise PlanError(
            f"no strategy fits this step; for example, {refused[0] if refused else ''}"
        )
    task.on_progress(f"priced {len(found)} strategies")
    return found, captured[max(captured)][1]


def _without_reductions(
    priced: PricedStrategy, others: Sequence[PricedStrategy]
) -> PricedStrategy:
    """The strategy with the memory that it needs if it reduces no gradients.

    Data parallelism reduces gradients after all microbatches. The simulated step reduces
    them at once, and keeps what it computes them from until then. So the bytes of a
    microbatch are those of the same strategy without the data axis, on the same batch of
    a device.
    """
    strategy = priced.strategy
    if strategy.tactics[:1] != (data_parallel(DATA),):
        return priced
    for other in others:
        alone = other.strategy
        if alone.model == strategy.model and alone.tactics == strategy.tactics[1:]:
            low, high = (
                replace(
                    prices,
                    saved=same.saved,
                    working=same.working,
                    stacked=same.stacked,
                )
                for prices, same in zip(priced.prices, other.prices, strict=True)
            )
            return replace(priced, prices=(low, high))
    return priced
