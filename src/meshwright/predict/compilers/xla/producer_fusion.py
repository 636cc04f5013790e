"""Producer fusion: whether consumers of an elementwise result recompute it.

XLA: `InstructionFusion`. The main rules are:

- a consumer computes its elementwise operands itself, and broadcasts, slices and other
  moves of single elements; several consumers do so only if reading the operands takes
  little more than reading the result;
- a conversion to more bits is stored only for consumers that cannot compute it;
- a result is written if it leaves the program, or if a consumer such as a collective, a
  loop or a sort needs it in memory.
"""

import math
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from meshwright.predict.compilers.model.dataflow import (
    Flow,
    body_inputs,
    stacked_ends,
    stored_outputs,
)
from meshwright.predict.compilers.model.fusion import (
    FUSES_OPERANDS,
    SLICE_OF_DEVICE,
    FusionKind,
    widening_bytes,
)
from meshwright.predict.compilers.model.policies import (
    FUSED,
    STORED,
    UNUSED,
    Decision,
    FusedOp,
    FusionPolicy,
)
from meshwright.program.analysis.accumulators import loop_carries
from meshwright.program.ir import Op, Value, num_bytes
from meshwright.program.ops import Trait, has_trait

_MOST_READ = 1.25
"""Largest number of bytes that a consumer may read per byte of a value that it
recomputes: an operand as large as the value, and vectors."""

_LEAST_BROADCAST = 4
"""A body recomputes a broadcast that is at least this many times larger than its
operand."""


DuplicationFn = Callable[[FusedOp, Value], bool | None]
"""A function that says whether recomputing a value saves time; `None` if its estimate
does not apply."""


@dataclass(frozen=True, slots=True)
class ProducerFusion:
    """XLA's decision for each result of an op: is it stored, or do consumers recompute it?

    initializers: kinds of ops that fill their own buffer if it starts as a broadcast.
    duplication: says whether several products recompute an operand. Without it, or if it
        returns `None`, the number of bytes that are read decides.
    """

    initializers: frozenset[str] = frozenset()
    duplication: DuplicationFn | None = None

    def __call__(self, producer: FusedOp) -> list[Decision]:
        """For each result, whether it is stored, recomputed by consumers, or both."""
        op, _, flow, _ = producer
        kind, found = flow.kinds[op], list[Decision]()
        carried = recomputed_carries(op) if op.bodies else ()
        for value in op.results:
            consumers = flow.consumers.get(value, ())
            if value in flow.stored or value in carried:
                found.append(STORED)
            elif kind is FusionKind.LOOP and self._is_fused(producer, value):
                found.append(FUSED)
            elif consumers and _can_widen(op, consumers, flow):
                # Consumers that can, read fewer bits and convert them.
                fusing = frozenset(c for c in consumers if self._fuses(c, value, flow))
                is_stored = not fusing.issuperset(consumers)
                found.append(Decision(is_stored, True, fusing))
            else:
                found.append(STORED if consumers or op.has_effect else UNUSED)
        return found

    def _is_fused(self, producer: FusedOp, value: Value) -> bool:
        """Whether every consumer of an elementwise result computes it itself."""
        flow = producer.flow
        consumers = flow.consumers.get(value, ())
        others = [c for c in consumers if flow.kinds[c] is not FusionKind.LOOP]
        if not all(self._fuses(consumer, value, flow) for consumer in others):
            return False
        if len(consumers) > 1 and not self._is_duplicated(producer, value):
            return False
        return not (others and _ends_a_product(producer))

    def _is_duplicated(self, producer: FusedOp, value: Value) -> bool:
        """Whether several consumers each compute a value instead of reading it."""
        estimate = self.duplication
        saves = None if estimate is None else estimate(producer, value)
        if saves is not None:
            return saves
        read_bytes = sum(map(num_bytes, producer.producers.reads))
        is_small = read_bytes <= _MOST_READ * num_bytes(value)
        return is_small or producer.flow.paths_join(value)

    def _fuses(self, consumer: Op, value: Value, flow: Flow) -> bool:
        """Whether one consumer computes an elementwise operand itself."""
        kind = flow.kinds[consumer]
        if consumer.kind in self.initializers:
            is_start = value is flow.operand(consumer, 0)
            return is_start and is_large_broadcast(value, flow)
        if kind is FusionKind.REGION:
            if not is_large_broadcast(value, flow):
                return False
            # A value that bodies slice by device is made before them, once.
            inside = body_inputs(consumer, value, flow.sources)
            return not _is_sliced_inside(consumer, inside)
        return kind in FUSES_OPERANDS and not flow.is_reshaped_for(consumer, value)


def uncarried_stack_outputs(op: Op) -> set[Value]:
    """Outputs of an op's bodies that are stacked over iterations, but that no loop carries.

    A loop writes what it computes both for the stack and for its next iteration into the
    stack, and copies it from there. What it already carries is copied to the stack.
    """
    carried = {
        op.bodies[body].inputs[i]
        for _, _, wire in loop_carries(op)
        for body, i in wire.inputs
    }
    return {end for _, end in stacked_ends(op) if end not in carried}


def carried_operands(op: Op, flow: Flow) -> dict[Value, Value]:
    """Results of a loop that take an operand's buffer, each with that operand.

    An operand that the loop also reads in every iteration keeps its buffer.
    """
    pairs = [
        (op.results[result], operand)
        for position, result, _ in loop_carries(op)
        if (operand := flow.operand(op, position)) is not None
    ]
    carried = Counter(operand for _, operand in pairs)
    others = Counter(flow.operands[op]) - carried
    return {result: operand for result, operand in pairs if operand not in others}


XLA_FUSION = FusionPolicy(
    decide=ProducerFusion(),
    single_consumer_chains=Flow.chain_links,
    aliased_operands=lambda root: (),
    carried_operands=carried_operands,
    stack_outputs=uncarried_stack_outputs,
    slice_readers=FUSES_OPERANDS,
)
"""XLA's fusion without what single targets add."""


def _can_widen(op: Op, consumers: Sequence[Op], flow: Flow) -> bool:
    """Whether an op converts to more bits, and none of its consumers is control flow."""
    kinds = (flow.kinds[consumer] for consumer in consumers)
    return widening_bytes(op) > 0 and FusionKind.REGION not in kinds


def is_large_broadcast(value: Value, flow: Flow) -> bool:
    """Whether a value repeats a much smaller one, so that bodies of loops recompute it."""
    op = flow.producers[value]
    least = _LEAST_BROADCAST * sum(map(num_bytes, flow.operands[op]))
    return has_trait(op.kind, Trait.REPEATS) and num_bytes(value) >= least


def _ends_a_product(producer: FusedOp) -> bool:
    """Whether an elementwise result becomes the epilogue of a product (output fusion).

    It does if nothing else reads the product, and the consumers of the result do not read
    it element by element.
    """
    result, num_bytes = producer.op.results[0], producer.layouts.num_bytes
    kinds, producers = producer.flow.kinds, producer.flow.producers
    return any(
        value in producers
        and kinds[producers[value]] is FusionKind.PRODUCT
        and math.prod(value.shape) == math.prod(result.shape)
        and num_bytes(value) > num_bytes(result)
        and _is_only_for(value, producer.op, producer.producers.ops, producer.flow)
        for value in producer.producers.reads
    )


def _is_only_for(value: Value, op: Op, ops: Collection[Op], flow: Flow) -> bool:
    """Whether a value is needed only by `op` and by the `ops` that are fused into it."""
    within = {op, *ops}
    depends = {value}
    for each in ops:
        if not depends.isdisjoint(flow.operands[each]):
            depends.update(each.results)
    return all(within.issuperset(flow.consumers.get(v, ())) for v in depends)


def recomputed_carries(op: Op) -> set[Value]:
    """Results of a loop that each iteration computes anew; they are stored in any case."""
    ends = [stored_outputs(body) for body in op.bodies]
    return {
        op.results[result]
        for _, result, wire in loop_carries(op)
        if not all(
            ends[body][i] in [op.bodies[n].inputs[j] for n, j in wire.inputs]
            for body, i in wire.outputs
        )
    }


def _is_sliced_inside(op: Op, values: Collection[Value]) -> bool:
    """Whether a body of an op, or a body within, slices a device's own part of a value.

    values: inputs of the op's bodies.
    """
    for body in op.bodies:
        names = set(values)
        for each in body.ops:
            if names.isdisjoint(each.operands):
                continue
            if each.kind == SLICE_OF_DEVICE:
                return True
            if has_trait(each.kind, Trait.ALIASES_OPERAND):
                names.update(each.results)
            inside = {
                each.bodies[number].inputs[i]
                for wire in each.wires
                if wire.operand is not None and each.operands[wire.operand] in names
                for number, i in wire.inputs
            }
            if inside and _is_sliced_inside(each, inside):
                return True
    return False
