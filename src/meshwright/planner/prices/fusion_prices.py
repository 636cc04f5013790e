"""Prices (seconds) of single ops, derived from the times of the fusions they are in.

A fusion takes as long as the resource that is its bottleneck: matrix unit, vector unit,
memory, or its launch. If all devices have nearly equal shares of the program (the
uniform partition), that time is approximated by a sum over the ops and values of the
fusion, so that each can be priced alone. The slopes of the sum are those of a smooth
maximum over the resources, which equals the fusion's time at the uniform partition.
"""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from meshwright.machine import Chip
from meshwright.planner.prices.op_prices import AccessPrice, LoopWire, OpPrices
from meshwright.predict.compilers.model.dataflow import bitcast_sources
from meshwright.predict.compilers.model.fusion import (
    FUSES_OPERANDS,
    Fusion,
    FusionKind,
)
from meshwright.predict.compilers.model.kernels import (
    Kernel,
    KernelSequence,
    accessed_values,
    matrix_unit_operands,
)
from meshwright.predict.compilers.xla.memory_space_assignment import on_chip_candidates
from meshwright.predict.roofline.kernel_time import (
    MOVE_FLOPS,
    Bound,
    KernelTraffic,
    bound_times,
    vector_flops,
)
from meshwright.program.ir import Atom, Op, Program, Value
from meshwright.program.ops import OpWork

_SHARPNESS = 4
"""Exponent p of the p-norm that approximates a fusion's maximum over its resources."""


class FusionPriceReader:
    """Adds up the prices of ops over the fusions of a program, loop bodies included.

    prices: the record to which they are added.
    """

    def __init__(self, prices: OpPrices, chip: Chip) -> None:
        self.prices = prices
        self.layouts = prices.layouts
        self.chip = chip
        self.num_devices = prices.num_devices

    def read(
        self, program: Program, sequence: KernelSequence, loop: Op | None = None
    ) -> None:
        """Add the prices of all ops of a program or loop body.

        sequence: its fusions as kernels, in order.
        loop: the op of which the program is a body.
        """
        # Not `sequence.on_chip`, which leaves out values that alias an output: that would
        # change the prices of programs that reshape what they return.
        fusions = [kernel.fusion for kernel in sequence.kernels]
        candidates = on_chip_candidates(fusions, program.outputs, self.layouts)
        on_chip = candidates.fitting(self.chip.lasting_bytes * self.num_devices)
        producers = {result: op for op in program.ops for result in op.results}
        aliases = bitcast_sources(program)
        arrays = _loop_arrays(program, loop, aliases)
        own_ops = frozenset(program.ops)
        for kernel in sequence.kernels:
            fusion = kernel.fusion
            if fusion.kind is FusionKind.REGION:
                self._add_remade_operands(fusion.root, producers, aliases)
            elif fusion.root not in own_ops:  # added by the compiler
                self._add_array_kernel(kernel, arrays, loop)
            elif fusion.kind is not FusionKind.COLLECTIVE:
                self._add(kernel, on_chip, producers, aliases)
            for body, inner in zip(fusion.root.bodies, kernel.bodies, strict=False):
                self.read(body, inner, fusion.root)

    def _add_array_kernel(
        self, kernel: Kernel, arrays: Mapping[Value, LoopWire], loop: Op | None
    ) -> None:
        """Price a kernel that copies, fills or rounds an array of a loop.

        arrays: wires of loops, by value. loop: the op whose body has the kernel.
        """
        values = _values(kernel.fusion.root.operands)
        wire = next((arrays[value] for value in values if value in arrays), None)
        if wire is not None:
            is_inside = wire[0] is loop
            root, num_bytes = kernel.fusion.root, kernel.num_bytes
            self.prices.add_array_kernel(wire, root, num_bytes, is_inside)

    def _add(
        self,
        kernel: Kernel,
        on_chip: frozenset[Value],
        producers: Mapping[Value, Op],
        aliases: Mapping[Value, Value],
    ) -> None:
        """Split the time of a kernel between its ops and the values that they access.

        on_chip: values that stay in scratch memory.
        producers: op that computes each value.
        aliases: for views, the value whose memory they show.
        """
        fusion = kernel.fusion
        moved, elements = self._traffic_by_value(fusion, on_chip)
        # Traffic is divided by the number of devices, as if rows were split: then each
        # tile that is read again is smaller, too.
        streams = None if kernel.streams is None else kernel.streams.outside(on_chip)
        traffic = KernelTraffic(
            sum(moved.values()), int(sum(elements.values())), streams
        )
        slopes = self._slopes(fusion.root, fusion.work, traffic)
        users: dict[Value, list[tuple[Op, Value]]] = defaultdict(list)
        vector_s = self.prices.vector_s
        for op, value, name in _members(fusion, producers, aliases):
            if value is None:
                vector_s[op] = vector_s.get(op, 0.0) + slopes[Bound.VECTOR]
                if fusion.kind is FusionKind.PRODUCT and op is not fusion.root:
                    self.prices.hidden.add(op)
            else:
                users[value].append((op, name))
        for value, uses in users.items():
            if value not in moved:
                continue
            flops = MOVE_FLOPS * elements[value] / len(uses)
            seconds = moved[value] / len(uses) * slopes[Bound.MEMORY]
            price = AccessPrice(
                seconds + flops * slopes[Bound.VECTOR],
                self.layouts.num_bytes(value) / len(uses) / self.chip.hbm_bytes_per_s,
                flops / self.chip.vector_flops_per_s,
            )
            for op, name in uses:
                by_value = self.prices.accesses.setdefault(op, {})
                by_value[name] = price.plus(by_value.get(name))
        self.prices.matrix[fusion.root] = slopes[Bound.MATRIX]
        self.prices.launch_s[fusion.root] = slopes[Bound.LAUNCH] * self.chip.launch_s

    def _traffic_by_value(
        self, fusion: Fusion, on_chip: frozenset[Value]
    ) -> tuple[dict[Value, float], dict[Value, float]]:
        """Bytes through main memory and elements through registers, by value."""
        fed = matrix_unit_operands(fusion)
        moved: dict[Value, float] = defaultdict(float)
        through: dict[Value, float] = defaultdict(float)
        for value in accessed_values(fusion):
            elements = math.prod(value.shape) * (0.5 if value in on_chip else 1.0)
            is_moved = value not in on_chip
            moved[value] += elements * self.layouts.itemsize(value) if is_moved else 0.0
            through[value] += 0.0 if value in fed else elements
        return moved, through

    def _add_remade_operands(
        self, region: Op, producers: Mapping[Value, Op], aliases: Mapping[Value, Value]
    ) -> None:
        """Price operands that a loop recomputes as if they were written to memory.

        A compiler recomputes such an operand in the loop only if no device has to slice
        it. Otherwise the operand is written, unless the plan shards it as the loop
        does. In that case the price is too high by the time to write a device's part
        once a step.
        """
        for wire in region.wires:
            inside = [region.bodies[body].inputs[i] for body, i in wire.inputs]
            if wire.operand is None or self.layouts.recomputed.isdisjoint(inside):
                continue
            (value,) = _values([region.operands[wire.operand]])
            value = aliases.get(value, value)
            seconds = self.layouts.num_bytes(value) / self.chip.hbm_bytes_per_s
            price = AccessPrice(seconds, seconds, 0.0)
            self.prices.accesses.setdefault(producers[value], {})[value] = price

    def _slopes(
        self, root: Op, work: OpWork, traffic: KernelTraffic
    ) -> dict[Bound, float]:
        """Seconds of a step per unit of each resource that a fusion uses.

        The units are a second in the matrix unit, a vector operation, a byte and a
        launch.
        """
        uniform = self._uniform_times(root, work, traffic)
        longest = max(uniform.values())
        if not longest:
            return dict.fromkeys(Bound, 0.0)
        norm = sum((t / longest) ** _SHARPNESS for t in uniform.values())
        slope = {
            b: (t / longest) ** (_SHARPNESS - 1) / norm for b, t in uniform.items()
        }
        flops = vector_flops(root, work, self.chip, traffic.elements)
        flops /= self.num_devices
        slope[Bound.VECTOR] *= uniform[Bound.VECTOR] / flops if flops else 0.0
        moved = traffic.num_bytes / self.num_devices
        slope[Bound.MEMORY] *= uniform[Bound.MEMORY] / moved if moved else 0.0
        return slope

    def _uniform_times(
        self, root: Op, work: OpWork, traffic: KernelTraffic
    ) -> dict[Bound, float]:
        """Seconds of a kernel in each resource, on a device with an equal share of it."""
        return bound_times(root, work, traffic, self.chip, self.num_devices)


def _loop_arrays(
    program: Program, loop: Op | None, aliases: Mapping[Value, Value]
) -> dict[Value, LoopWire]:
    """The wires of loops by the values of a program that they take in or hand out.

    loop: the op of which the program is a body; its stacked wires are included.
    aliases: for views, the value whose memory they show.
    """
    taken = {
        aliases.get(value, value): (op, wire)
        for op in program.ops
        for wire in op.wires
        if wire.operand is not None
        for value in _values([op.operands[wire.operand]])
    }
    made = {
        op.results[wire.result]: (op, wire)
        for op in program.ops
        for wire in op.wires
        if wire.is_stacked and wire.result is not None
    }
    return {**taken, **({} if loop is None else _slices(loop, aliases)), **made}


def _slices(loop: Op, aliases: Mapping[Value, Value]) -> dict[Value, LoopWire]:
    """The stacked wires of a loop, by the slices that its bodies read or make."""
    found: dict[Value, LoopWire] = {}
    for wire in loop.wires:
        ends = [loop.bodies[n].inputs[i] for n, i in wire.inputs]
        ends += _values([loop.bodies[n].outputs[i] for n, i in wire.outputs])
        if wire.is_stacked:
            found |= {aliases.get(value, value): (loop, wire) for value in ends}
    return found


def _members(
    fusion: Fusion, producers: Mapping[Value, Op], aliases: Mapping[Value, Value]
) -> Iterator[tuple[Op, Value | None, Value]]:
    """The ops of a fusion, and their accesses to memory.

    An op is given as (op, None, its first result), an access as (op, the value in
    memory, the op's own operand or result).
    """
    reads = {aliases.get(v, v): v for v in reversed(fusion.reads)}
    reads |= {v: v for v in fusion.reads if v not in aliases}
    writes = {aliases.get(v, v): v for v in fusion.writes}
    waiting = [part.root for part in fusion.parts]
    seen = set(waiting)
    while waiting:
        op = waiting.pop()
        if op.results:
            yield op, None, op.results[0]
        for result in op.results:
            if result in writes:
                yield op, writes[result], result
        for operand in dict.fromkeys(_values(op.operands)):
            value = aliases.get(operand, operand)
            if value in reads:
                yield op, reads[value], operand
                continue
            producer = producers.get(value)
            is_fused = fusion.kind in FUSES_OPERANDS
            if is_fused and producer is not None and producer not in seen:
                seen.add(producer)
                waiting.append(producer)


def _values(atoms: Sequence[Atom]) -> list[Value]:
    return [a for a in atoms if isinstance(a, Value)]
