"""Reads what each op of a program takes off its fused units, at an even share.

The program is fused before it is cut, since cutting seldom changes what a compiler fuses,
and its units are timed as if every device took an even share. A unit takes as long as
what binds it: the matrix unit, the vector unit, memory, or its launch. Around that even
cut the time is taken as a sum over the unit's ops and values, so that choices of each can
be priced alone: the slopes are those of a smooth maximum over the bounds, which is the
time itself at the even cut.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from meshwright.machine import Machine
from meshwright.planner.prices.op_prices import AccessPrice, OpPrices, SmallBatchPrices
from meshwright.planner.prices.small_batches import credit_original_ops, images_of
from meshwright.predict.compilers.hlo.compilation import (
    Compilation,
    Stage,
    start_compilation,
)
from meshwright.predict.compilers.hlo.fusion import (
    FUSES_OPERANDS,
    Fusion,
    FusionKind,
)
from meshwright.predict.compilers.hlo.kernels import (
    accessed_values,
    matrix_unit_operands,
)
from meshwright.predict.compilers.hlo.product_streams import streamed_operands
from meshwright.predict.compilers.targets import compiler_of
from meshwright.predict.compilers.tpu.space_to_batch import max_split_batch
from meshwright.predict.compilers.xla.memory_space_assignment import on_chip_candidates
from meshwright.predict.compilers.xla.multi_output_fusion import merge_fusions
from meshwright.predict.memory.buffer_assignment import memory_of
from meshwright.predict.roofline.bound import Bound
from meshwright.predict.roofline.kernel_time import (
    MOVE_FLOPS,
    KernelTraffic,
    bound_times,
    vector_flops,
)
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import OpWork, Trait, has_trait

_SHARPNESS = 4
"""Power of the norm that stands for the maximum over the bounds of a unit."""


def price_ops(program: Program, machine: Machine, num_devices: int) -> OpPrices:
    """What a machine's compiler stores of a program, priced at an even share of it.

    Calls that are made again (`jax.checkpoint`) stay regions here, as their ops decide
    together, and so do choices by platform, with all branches; simulated, a body of
    theirs stands in the program.
    """
    begun = start_compilation(
        program, compiler_of(machine), machine.chip.tile, num_devices
    )
    few = _few_images(begun, machine)
    fused = begun.after(Stage.PRECISION, Stage.FUSION)
    taken = memory_of(fused).overwritten
    prices = OpPrices(fused.layouts, fused.fusions, num_devices, taken, few=few)
    return _read(prices, program, machine)


def _few_images(begun: Compilation, machine: Machine) -> SmallBatchPrices | None:
    """What ops take where images are few; None where an even share of them is not."""
    program, num_devices = begun.program, begun.num_devices
    split = begun.after(Stage.LAYOUTS)
    if split.program is program:
        return None
    fused = split.after(Stage.PRECISION, Stage.FUSION)
    stores = OpPrices(fused.layouts, fused.fusions, num_devices)
    images = images_of(program, max_split_batch(fused.layouts, num_devices))
    # Others have no prices: they are names of what they read, or regions.
    priced = {
        op
        for op in images
        if not has_trait(op.kind, Trait.ALIASES_OPERAND) and not op.bodies
    }
    told = credit_original_ops(
        _read(stores, fused.program, machine), fused.program, fused.origins, priced
    )
    return SmallBatchPrices(images, max_split_batch(fused.layouts), told)


def _read(stores: OpPrices, program: Program, machine: Machine) -> OpPrices:
    _Reader(stores, machine).read(program, stores.units)
    return stores


class _Reader:
    """Goes through the units of a program, bodies of loops included."""

    def __init__(self, stores: OpPrices, machine: Machine) -> None:
        self.op_prices = stores
        self.chip = machine.chip
        self.num_devices = stores.num_devices

    def read(self, program: Program, units: Sequence[Fusion]) -> None:
        """Note what the ops of one body take."""
        merged = merge_fusions(units)
        room = self.chip.lasting_bytes * self.num_devices
        kept = on_chip_candidates(merged, program.outputs, self.op_prices.layout)
        kept = kept.fitting(room)
        makers = {result: op for op in program.ops for result in op.results}
        names = _names(program)
        for unit in merged:
            if unit.kind is FusionKind.REGION:
                self._note_repeats(unit.root, makers, names)
            elif unit.kind is not FusionKind.COLLECTIVE:
                self._note(unit, kept, makers, names)
            for body, inner in zip(unit.root.bodies, unit.bodies, strict=False):
                self.read(body, inner)

    def _note(
        self,
        unit: Fusion,
        kept: frozenset[Value],
        makers: Mapping[Value, Op],
        names: Mapping[Value, Value],
    ) -> None:
        stores, fed = self.op_prices, matrix_unit_operands(unit)
        moved: dict[Value, float] = {}
        passing: dict[Value, float] = {}
        for value in accessed_values(unit):
            elements = math.prod(value.shape) * (0.5 if value in kept else 1.0)
            size = 0.0 if value in kept else elements * stores.layout.itemsize(value)
            moved[value] = moved.get(value, 0.0) + size
            elements = 0.0 if value in fed else elements
            passing[value] = passing.get(value, 0.0) + elements
        # As if rows were cut: what is read again for a tile of a part is a part of it.
        sides = streamed_operands(unit, stores.layout)
        streams = None if sides is None else sides.outside(kept)
        through = int(sum(passing.values()))
        traffic = KernelTraffic(sum(moved.values()), through, streams)
        slopes = self._slopes(unit.root, unit.work, traffic)
        owners: dict[Value, list[tuple[Op, Value]]] = defaultdict(list)
        for op, value, name in _members(unit, makers, names):
            if value is None:
                before = stores.vector.get(op, 0.0)
                stores.vector[op] = before + slopes[Bound.VECTOR]
                if unit.kind is FusionKind.PRODUCT and op is not unit.root:
                    stores.covered.add(op)
            else:
                owners[value].append((op, name))
        for value, uses in owners.items():
            if value not in moved:
                continue
            shares = len(uses)
            elements = MOVE_FLOPS * passing[value] / shares
            seconds = moved[value] / shares * slopes[Bound.MEMORY]
            touch = AccessPrice(
                seconds + elements * slopes[Bound.VECTOR],
                stores.layout.num_bytes(value) / shares / self.chip.hbm_bytes_per_s,
                elements / self.chip.vector_flops_per_s,
            )
            for op, name in uses:
                known = stores.touches.setdefault(op, {})
                known[name] = touch.plus(known[name]) if name in known else touch
        stores.matrix[unit.root] = slopes[Bound.MATRIX]
        stores.launch[unit.root] = slopes[Bound.LAUNCH] * self.chip.launch_s

    def _note_repeats(
        self, region: Op, makers: Mapping[Value, Op], names: Mapping[Value, Value]
    ) -> None:
        """What a loop makes itself costs what writing it would: it may come to that.

        A loop does not make what a device takes its own part of inside, so that plans
        have to cut it as the loop does. Where they do, this is too much, by the time to
        write a device's part once in a step.
        """
        stores = self.op_prices
        for wire in region.wires:
            inside = [region.bodies[body].inputs[i] for body, i in wire.inputs]
            if wire.operand is None or stores.layout.recomputed.isdisjoint(inside):
                continue
            (value,) = _values([region.operands[wire.operand]])
            value = names.get(value, value)
            seconds = stores.layout.num_bytes(value) / self.chip.hbm_bytes_per_s
            touch, known = AccessPrice(seconds, seconds, 0.0), stores.touches
            known.setdefault(makers[value], {})[value] = touch

    def _slopes(
        self, root: Op, work: OpWork, traffic: KernelTraffic
    ) -> dict[Bound, float]:
        """Seconds for a second in the matrix unit, a vector operation, a byte, a launch."""
        whole = bound_times(root, work, traffic, self.chip)
        even = {b: t / self.num_devices for b, t in whole.items()}
        even[Bound.LAUNCH] = whole[Bound.LAUNCH]
        most = max(even.values())
        if not most:
            return dict.fromkeys(Bound, 0.0)
        norm = sum((t / most) ** _SHARPNESS for t in even.values())
        slope = {b: (t / most) ** (_SHARPNESS - 1) / norm for b, t in even.items()}
        flops = vector_flops(root, work, traffic.elements)
        slope[Bound.VECTOR] *= whole[Bound.VECTOR] / flops if flops else 0.0
        moved = traffic.num_bytes
        slope[Bound.MEMORY] *= whole[Bound.MEMORY] / moved if moved else 0.0
        return slope


def _names(program: Program) -> dict[Value, Value]:
    """The value whose memory a value is, where it is only another name of it."""
    names: dict[Value, Value] = {}
    for op in program.ops:
        operands = [v for v in op.operands if isinstance(v, Value)]
        if has_trait(op.kind, Trait.ALIASES_OPERAND) and operands:
            for result, operand in zip(op.results, operands, strict=False):
                names[result] = names.get(operand, operand)
    return names


def _members(
    unit: Fusion, makers: Mapping[Value, Op], names: Mapping[Value, Value]
) -> Iterator[tuple[Op, Value | None, Value]]:
    """The ops of a unit, each once as (op, None, its result), and what they touch.

    That is (op, the value in memory, the name by which the op knows it).
    """
    reads = {names.get(v, v) for v in unit.reads}
    writes = {names.get(v, v): v for v in unit.writes}
    waiting = [part.root for part in unit.parts]
    seen = set(waiting)
    while waiting:
        op = waiting.pop()
        if op.results:
            yield op, None, op.results[0]
        for result in op.results:
            if result in writes:
                yield op, writes[result], result
        for operand in dict.fromkeys(_values(op.operands)):
            value = names.get(operand, operand)
            if value in reads:
                yield op, _in(unit.reads, value, names), operand
                continue
            maker = makers.get(value)
            takes = unit.kind in FUSES_OPERANDS
            if takes and maker is not None and maker not in seen:
                seen.add(maker)
                waiting.append(maker)


def _values(atoms: Sequence[Atom]) -> list[Value]:
    return [a for a in atoms if isinstance(a, Value)]


def _in(reads: Sequence[Value], value: Value, names: Mapping[Value, Value]) -> Value:
    """The name by which a unit reads a value."""
    if value in reads:
        return value
    return next(v for v in reads if names.get(v, v) == value)
