"""Prices of the ops of a program at its uniform partition.

The program is compiled before it is partitioned, since partitioning seldom changes what a
compiler fuses, and its kernels are timed as if every device computed an equal part.
"""

from __future__ import annotations

from meshwright.machine import Chip, Machine
from meshwright.planner.prices.fusion_prices import FusionPriceReader
from meshwright.planner.prices.op_prices import OpPrices, SmallBatchPrices
from meshwright.planner.prices.small_batches import credit_original_ops, images_of
from meshwright.predict.compilers.hlo.compilation import (
    Compilation,
    Stage,
    start_compilation,
)
from meshwright.predict.compilers.targets import compiler_of
from meshwright.predict.compilers.tpu.space_to_batch import max_split_batch
from meshwright.predict.memory.buffer_assignment import memory_of
from meshwright.program.ir import Program, Value
from meshwright.program.ops import Trait, has_trait


def price_ops(program: Program, machine: Machine, num_devices: int) -> OpPrices:
    """The prices of a program's ops, as the machine's compiler fuses them.

    Unlike in a simulation, calls of `jax.checkpoint` stay regions, since their ops decide
    together, and so do branches by platform, all of them: the passes that rewrite ops of a
    device program do not run.
    """
    chip = machine.chip
    start = start_compilation(program, compiler_of(machine), chip.tile, num_devices)
    small_batch = _small_batch(start, chip)
    fused = start.after(Stage.PRECISION, Stage.FUSION)
    return _read_prices(fused, chip, memory_of(fused).overwritten, small_batch)


def _small_batch(start: Compilation, chip: Chip) -> SmallBatchPrices | None:
    """Prices with images cut in space; `None` if the uniform partition cuts none."""
    program = start.program
    split = start.after(Stage.LAYOUTS)
    if split.program is program:
        return None
    fused = split.after(Stage.PRECISION, Stage.FUSION)
    images = images_of(program, max_split_batch(fused.layouts, start.num_devices))
    # Other ops have no prices: they alias an operand or are regions.
    priced = {
        op
        for op in images
        if not has_trait(op.kind, Trait.ALIASES_OPERAND) and not op.bodies
    }
    prices = _read_prices(fused, chip)
    prices = credit_original_ops(prices, fused.program, fused.origins, priced)
    return SmallBatchPrices(images, max_split_batch(fused.layouts), prices)


def _read_prices(
    fused: Compilation,
    chip: Chip,
    overwritten: frozenset[Value] = frozenset(),
    small_batch: SmallBatchPrices | None = None,
) -> OpPrices:
    reader = FusionPriceReader(fused.layouts, chip, fused.num_devices)
    reader.read(fused.program, fused.kernels)
    return OpPrices(
        fused.layouts,
        fused.fusions,
        fused.num_devices,
        overwritten,
        frozenset(reader.hidden),
        reader.matrix,
        reader.vector_s,
        reader.accesses,
        reader.launch_s,
        small_batch,
    )
