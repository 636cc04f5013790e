"""Prices of the ops of a program, if all devices compute equal parts of each op.

The program is compiled (in a model of the compiler) before it is partitioned, since
partitioning seldom changes what a compiler fuses. Its kernels are timed as if every
device computed an equal part: the uniform partition.

If each device has few images, XLA's SpaceToBatchConverter splits them in space, which
adds copies and fuses less (`predict.compilers.tpu.space_to_batch`). Which images can be
split depends on their shapes and hardly on their number. So a program is priced twice,
with and without the pass, and a strategy takes the prices for the number of images that
it leaves on a device.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from meshwright.machine import Chip, Machine
from meshwright.planner.prices.fusion_prices import FusionPriceReader
from meshwright.planner.prices.op_prices import (
    AccessPrice,
    OpPrices,
    SmallBatchPrices,
)
from meshwright.predict.compilers.gpu.layout_assignment import COPY
from meshwright.predict.compilers.model.compilation import (
    Compilation,
    Stage,
    start_compilation,
)
from meshwright.predict.compilers.model.fusion import SPACE_TO_BATCH_COPY
from meshwright.predict.compilers.targets import compiler_of
from meshwright.predict.compilers.tpu.image_splits import ImageSplits
from meshwright.predict.compilers.tpu.space_to_batch import max_split_batch
from meshwright.predict.memory.buffer_assignment import memory_of
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import Trait, has_trait

type Access = tuple[Op, Value]
"""An op, and a value that it reads or writes."""


def price_ops(program: Program, machine: Machine, num_devices: int) -> OpPrices:
    """Prices of a program's ops, with the fusions of the machine's compiler.

    Passes that rewrite ops of a device program do not run. So, unlike in a simulation,
    calls of `jax.checkpoint` stay single ops with a body, since the ops of the body are
    partitioned together, and a branch by platform keeps all its alternatives.
    """
    chip = machine.chip
    start = start_compilation(program, compiler_of(machine), chip.tile, num_devices)
    laid_out = start.after(Stage.LAYOUTS)
    small_batch = _small_batch(start, laid_out, chip)
    fused = start.after(Stage.PRECISION, Stage.FUSION)
    prices = _read_prices(fused, chip, memory_of(fused).overwritten, small_batch)
    _add_stack_copies(prices, laid_out)
    return prices


def _add_stack_copies(prices: OpPrices, laid_out: Compilation) -> None:
    """Price the copies of stacks to the order of dims that the next loop needs.

    laid_out: the program with these copies.
    """
    own, origins = set(laid_out.input.walk()), laid_out.origins
    added = (op for op in laid_out.program.walk() if op.kind == COPY and op not in own)
    copies: dict[Atom, Op] = {op.results[0]: op for op in added}
    for op in laid_out.program.walk() if copies else ():
        for wire in op.wires:
            copy = (
                None if wire.operand is None else copies.get(op.operands[wire.operand])
            )
            if copy is not None:
                num_bytes = 2 * prices.layouts.num_bytes(copy.results[0])
                prices.add_array_kernel((origins.get(op, op), wire), copy, num_bytes)


def _small_batch(
    start: Compilation, split: Compilation, chip: Chip
) -> SmallBatchPrices | None:
    """Prices of ops if images are split in space; `None` if no image would be split.

    split: the program after the pass that splits them.
    """
    program = start.program
    if split.program is program:
        return None
    fused = split.after(Stage.PRECISION, Stage.FUSION)
    images = _images_of(program, max_split_batch(fused.layouts, start.num_devices))
    if not images:
        return None
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
    prices = OpPrices(
        fused.layouts, fused.fusions, fused.num_devices, overwritten, small_batch
    )
    FusionPriceReader(prices, chip).read(fused.program, fused.kernels)
    return prices


def _images_of(program: Program, max_images: int) -> dict[Op, tuple[Value, int]]:
    """An image of each op, and the dim of it that counts images.

    Only images are included that are split if a device has up to `max_images` of them.
    """
    found: dict[Op, tuple[Value, int]] = {}
    splits = ImageSplits(program, max_images)
    for op in program.ops:
        for body in op.bodies:
            found |= _images_of(body, max_images)
        image = splits.images(op)
        if image is not None:
            found[op] = image
    return found


def credit_original_ops(
    prices: OpPrices,
    changed: Program,
    origins: Mapping[Op, Op],
    priced: Collection[Op],
) -> OpPrices:
    """Prices of a rewritten program, assigned to the ops of the original program.

    origins: the original op of each rewritten op.
    priced: ops of the original program that have prices.

    The seconds of an added copy are assigned to the op in `priced` that reads the copy,
    or else to the op that produces the copied value.
    """
    owners = _owners(changed, origins, priced)
    launch_s: dict[Op, float] = {}
    for op, seconds in prices.launch_s.items():
        owner = owners[op][0] if op in owners else origins.get(op, op)
        launch_s[owner] = launch_s.get(owner, 0.0) + seconds
    accesses: dict[Op, dict[Value, AccessPrice]] = {}
    for op, by_value in prices.accesses.items():
        origin = origins.get(op, op)
        names = dict(_paired_values(op, origin))
        for value, price in by_value.items():
            owner, name = owners.get(op) or (origin, names[value])
            credited = accesses.setdefault(owner, {})
            credited[name] = price.plus(credited.get(name))

    def of_originals(seconds: Mapping[Op, float]) -> dict[Op, float]:
        # Copies have neither products nor vector operations.
        return {origins.get(o, o): s for o, s in seconds.items() if o not in owners}

    return replace(
        prices,
        overwritten=frozenset(),
        hidden={origins.get(o, o) for o in prices.hidden if o not in owners},
        matrix=of_originals(prices.matrix),
        vector_s=of_originals(prices.vector_s),
        accesses=accesses,
        launch_s=launch_s,
    )


def _owners(
    changed: Program, origins: Mapping[Op, Op], priced: Collection[Op]
) -> dict[Op, Access]:
    """The op and value of the original program that pay for each added copy."""
    owners: dict[Op, Access] = {}
    read: dict[Value, Access] = {}
    produced: dict[Value, Access] = {}
    copies: list[Op] = []
    for op in reversed([*changed.walk()]):
        if op.kind == SPACE_TO_BATCH_COPY:
            copies.append(op)
            if op.results[0] in read:
                read[_source(op)] = owners[op] = read[op.results[0]]
            continue
        origin = origins.get(op, op)
        for result, old in zip(op.results, origin.results, strict=True):
            produced[result] = origin, old
        if origin in priced:
            for operand, old in _paired_values(op, origin):
                if operand not in produced:
                    read[operand] = origin, old
    for op in reversed(copies):
        owner = owners.get(op) or produced.get(_source(op))
        if owner is not None:  # else a program input is copied, and no op pays for it
            owners[op] = produced[op.results[0]] = owner
    return owners


def _source(copy: Op) -> Value:
    (value,) = copy.operands
    assert isinstance(value, Value)
    return value


def _paired_values(op: Op, origin: Op) -> Iterator[tuple[Value, Value]]:
    """Each value that an op accesses, with the value of `origin` in its position."""
    new, old = (*op.operands, *op.results), (*origin.operands, *origin.results)
    for one, other in zip(new, old, strict=True):
        if isinstance(one, Value) and isinstance(other, Value):
            yield one, other
