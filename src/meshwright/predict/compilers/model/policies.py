"""Policies of a compiler: its rules for forming fusions and for assigning buffers.

`xla.instruction_fusion` applies the fusion policy, `memory.buffer_assignment` the
buffer policy.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from meshwright.predict.compilers.model.dataflow import Flow, stored_outputs
from meshwright.predict.compilers.model.fusion import FusedProducers, Fusion, FusionKind
from meshwright.predict.compilers.model.tiled_layouts import Layouts
from meshwright.program.analysis.accumulators import loop_carries
from meshwright.program.ir import Atom, Op, Program, Value


class Decision(NamedTuple):
    """Whether one result of an op is written to memory, recomputed by consumers, or both.

    consumers: the consumers that recompute it; `None` means all.
    """

    is_stored: bool
    is_fused: bool
    consumers: frozenset[Op] | None = None


STORED, FUSED = Decision(True, False), Decision(False, True)
UNUSED = Decision(False, False)


class FusedOp(NamedTuple):
    """An op and the producers fused into it, in a program's dataflow graph."""

    op: Op
    producers: FusedProducers
    flow: Flow
    layouts: Layouts


@dataclass(frozen=True, slots=True)
class FusionPolicy:
    """Functions by which one compiler decides how to form fusions.

    decide: for each result of an op, whether it is stored or recomputed by consumers.
    single_consumer_chains: values that their only consumer always recomputes, with
        their producers; `decide` is not called for such values.
    aliased_operands: operands whose buffers a result may take after their last use.
    carried_operands: for results of a loop, the operand whose buffer they take.
    stack_outputs: outputs of an op's bodies that are written into the stacked result.
    slice_readers: kinds of fusions that read a slice of a stacked operand in place.
    reclassify: a function that returns the dataflow graph with patterns, such as
        softmaxes, marked for fusion.
    """

    decide: Callable[[FusedOp], Sequence[Decision]]
    single_consumer_chains: Callable[[Flow], Mapping[Value, Op]]
    aliased_operands: Callable[[FusedOp], tuple[Value, ...]]
    carried_operands: Callable[[Op, Flow], Mapping[Value, Value]]
    stack_outputs: Callable[[Op], set[Value]]
    slice_readers: frozenset[FusionKind]
    reclassify: Callable[[Flow], Flow] = field(default=lambda flow: flow)


BodyOrderFn = Callable[[Op, int, Sequence[Fusion]], Sequence[Fusion]]
"""Type of a function that orders the fusions of one body of a loop or branch.

Its arguments are the op, the index of the body among the op's bodies, and the fusions.
"""


class HeapOrder(Enum):
    """The order in which a compiler packs buffers into a heap of temporary memory."""

    BEST_FIT = "largest or longest-lived first, the heap of each body by itself"
    BY_TIME = "in the order in which live ranges begin, those of bodies included"
    OUTPUTS_APART = "outputs outside the heap, the rest best-fit into them and a heap"


class BodyBuffers(NamedTuple):
    """Buffers at the boundary of one body of a loop or branch.

    inputs: body inputs that have a buffer inside the body.
    outputs: body outputs that live to the body's end.
    aliases: for a body input, the output that takes over its buffer.
    outside: inputs whose bytes are also counted outside the body.
    """

    inputs: Sequence[Value]
    outputs: Sequence[Atom]
    aliases: dict[Value, Atom]
    outside: Collection[Value] = ()


def all_inputs_shared(
    op: Op, number: int, fusions: Sequence[Fusion], layouts: Layouts
) -> BodyBuffers:
    """Boundary buffers of a body if its inputs share the buffers of the op's operands.

    Only slices of stacked operands have buffers inside the body. Carries are updated in
    place. number: index of the body among the op's bodies.
    """
    body = op.bodies[number]
    shared = shared_inputs(op, number)
    inputs = [v for v in body.inputs if v not in shared]
    aliases = carried_in_place(op, number, fusions, layouts)
    return BodyBuffers(inputs, stored_outputs(body), aliases)


def carried_in_place(
    op: Op, number: int, fusions: Sequence[Fusion], layouts: Layouts
) -> dict[Value, Atom]:
    """For each loop carry that is updated in place, the output that overwrites it.

    The keys are body inputs. Input and output must have equal sizes, and a fusion of
    the body must compute the output. number: index of the body among the op's bodies.
    """
    inputs, outputs = op.bodies[number].inputs, stored_outputs(op.bodies[number])
    made, size = {value for each in fusions for value in each.writes}, layouts.size
    return {
        inputs[i]: end
        for _, _, wire in loop_carries(op)
        for n, i in wire.inputs
        for m, j in wire.outputs
        if n == m == number and isinstance(end := outputs[j], Value)
        if end in made and size(end) == size(inputs[i])
    }


def shared_inputs(op: Op, number: int) -> set[Value]:
    """The inputs of one body that share an operand's buffer.

    These are all inputs except slices of stacked operands. number: index of the body
    among the op's bodies.
    """
    return {
        op.bodies[body].inputs[i]
        for wire in op.wires
        if not wire.is_stacked
        for body, i in wire.inputs
        if body == number
    }


@dataclass(frozen=True, slots=True)
class BufferPolicy:
    """Rules by which one compiler assigns buffers to values.

    heap: order in which buffers are packed.
    alignment_bytes: alignment of offsets, and of the address tables for prefetched
        arguments and for kernels with several results; 0 if unknown.
    compresses_layouts: whether padding is removed when memory is short.
    outputs: values of a program that live to its end.
    body_buffers: a function that finds the buffers at the boundary of a body, from the
        op, the index of the body, the body's fusions and the layouts.
    body_order: the order in which the fusions of a body run; by default program order.
    preallocates_stacks: whether the array that a loop stacks has its buffer from the
        program's start.
    aliases_any_size: whether a result may take any operand's buffer that is free, even
        of another size, and even if the kernel that wrote the operand writes several
        values.
    """

    heap: HeapOrder = HeapOrder.BEST_FIT
    alignment_bytes: int = 0
    compresses_layouts: bool = False
    outputs: Callable[[Program], Sequence[Atom]] = stored_outputs
    body_buffers: Callable[[Op, int, Sequence[Fusion], Layouts], BodyBuffers] = (
        all_inputs_shared
    )
    body_order: BodyOrderFn = field(default=lambda op, number, fusions: fusions)
    preallocates_stacks: bool = False
    aliases_any_size: bool = False

    def is_preallocated(self, op: Op, result: Value) -> bool:
        """Whether a result, such as a loop's stack, has a buffer from program start."""
        return self.preallocates_stacks and any(
            wire.is_stacked
            and wire.result is not None
            and op.results[wire.result] is result
            for wire in op.wires
        )
