"""Producer fusion: whether consumers recompute what an elementwise op makes.

XLA: `InstructionFusion`. The rules are in the main:

- elementwise ops, broadcasts, slices and other moves of single elements are computed by
  their consumers; by several only if reading the operands takes little more than reading
  the result;
- a conversion to more bits is stored only for consumers that cannot compute it;
- a result is written if it leaves the program, or if a consumer such as a collective, a
  loop or a sort needs it in memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from meshwright.predict.compilers.hlo.control_flow import (
    carried_operands,
    is_sliced_inside,
    recomputed_carries,
    uncarried_stack_outputs,
)
from meshwright.predict.compilers.hlo.dataflow import Flow, body_inputs
from meshwright.predict.compilers.hlo.fusion import (
    FUSES_OPERANDS,
    FusionKind,
    widening_bytes,
)
from meshwright.predict.compilers.hlo.policies import (
    FUSED,
    STORED,
    UNUSED,
    Decision,
    FusedOp,
    FusionPolicy,
)
from meshwright.program.ir import Op, Value, num_bytes
from meshwright.program.ops import Trait, has_trait

_MOST_READ = 1.25
"""Bytes that a consumer may read per byte of a recomputed value: itself, and vectors."""

_LEAST_BROADCAST = 4
"""Times that a broadcast must be larger than its operand for a body to recompute it."""


DuplicationFn = Callable[[FusedOp, Value, Sequence[Op]], bool | None]
"""Whether recomputing a value saves time; `None` if the estimate does not apply."""


@dataclass(frozen=True, slots=True)
class ProducerFusion:
    """Decisions of XLA's producer fusion on the results of an op.

    initializers: kinds of ops that compute the broadcast that they write into.
    duplication: estimate that several products ask for; without one they count bytes.
    """

    initializers: frozenset[str] = frozenset()
    duplication: DuplicationFn | None = None

    def __call__(self, producer: FusedOp) -> list[Decision]:
        """The fate of each result of an op."""
        op, _, flow, _ = producer
        kind, found = flow.kinds[op], list[Decision]()
        carried = recomputed_carries(op) if op.bodies else ()
        for value in op.results:
            consumers = flow.consumers.get(value, ())
            if value in flow.stored or value in carried:
                found.append(STORED)
            elif kind is FusionKind.LOOP and self._is_fused(producer, value, consumers):
                found.append(FUSED)
            elif consumers and _is_stored_narrow(op, consumers, flow):
                # Consumers that can, read fewer bits and convert them.
                fusing = frozenset(c for c in consumers if self._fuses(c, value, flow))
                is_stored = not fusing.issuperset(consumers)
                found.append(Decision(is_stored, True, fusing))
            else:
                found.append(STORED if consumers or op.has_effect else UNUSED)
        return found

    def _is_fused(
        self, producer: FusedOp, value: Value, consumers: Sequence[Op]
    ) -> bool:
        """Whether all consumers of an elementwise result compute it."""
        flow = producer.flow
        others = [c for c in consumers if flow.kinds[c] is not FusionKind.LOOP]
        for consumer in others:
            if not self._fuses(consumer, value, flow):
                return False
        if len(consumers) > 1 and not self._is_duplicated(producer, value, consumers):
            return False
        return not (others and _ends_a_product(producer))

    def _is_duplicated(
        self, producer: FusedOp, value: Value, consumers: Sequence[Op]
    ) -> bool:
        """Whether several consumers compute a value rather than have it stored."""
        flow = producer.flow
        if self.duplication is not None:
            saves = self.duplication(producer, value, consumers)
            if saves is not None:
                return saves
        read_bytes = sum(map(num_bytes, producer.producers.reads))
        is_small = read_bytes <= _MOST_READ * num_bytes(value)
        return is_small or flow.paths_join(value)

    def _fuses(self, consumer: Op, value: Value, flow: Flow) -> bool:
        """Whether a consumer computes an elementwise operand where it needs it."""
        kind = flow.kinds[consumer]
        if consumer.kind in self.initializers:
            return value is flow.operand(consumer, 0) and _is_large_broadcast(
                value, flow
            )
        if kind is FusionKind.REGION:
            if not _is_large_broadcast(value, flow):
                return False
            # A value that bodies slice by device is made before them, once.
            inside = body_inputs(consumer, value, flow.sources)
            return not is_sliced_inside(consumer, inside)
        return kind in FUSES_OPERANDS and not flow.is_reshaped_for(consumer, value)


XLA_FUSION = FusionPolicy(
    decide=ProducerFusion(),
    single_consumer_chains=Flow.chain_links,
    aliased_operands=lambda root: (),
    carried_operands=carried_operands,
    stack_outputs=uncarried_stack_outputs,
    slice_readers=FUSES_OPERANDS,
)
"""XLA's fusion without what single targets add."""


def _is_stored_narrow(op: Op, consumers: Sequence[Op], flow: Flow) -> bool:
    """Whether a conversion adds bits, and none of its consumers is control flow."""
    kinds = (flow.kinds[consumer] for consumer in consumers)
    return widening_bytes(op) > 0 and FusionKind.REGION not in kinds


def _is_large_broadcast(value: Value, flow: Flow) -> bool:
    """Whether a value only repeats a smaller one, so that bodies compute it too."""
    op = flow.producers[value]
    return has_trait(op.kind, Trait.REPEATS) and _LEAST_BROADCAST * sum(
        map(num_bytes, flow.operands[op])
    ) <= num_bytes(value)


def _ends_a_product(producer: FusedOp) -> bool:
    """Whether the product that a result is computed from should rather write it.

    That is so if nothing else needs the product, and the consumers of the result do not
    read it element by element (output fusion).
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
    """Whether only `op` and the `ops` fused into it depend on a value."""
    within = {op, *ops}
    depends = {value}
    for each in ops:
        if not depends.isdisjoint(flow.operands[each]):
            depends.update(each.results)
    return all(within.issuperset(flow.consumers.get(v, ())) for v in depends)
