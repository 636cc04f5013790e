"""Policy of a compiler for buffers, which `memory.buffer_assignment` follows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from meshwright.predict.compilers.hlo.control_flow import carried_in_place
from meshwright.predict.compilers.hlo.dataflow import stored_outputs
from meshwright.predict.compilers.hlo.fusion import Fusion
from meshwright.predict.compilers.hlo.layouts import Layouts
from meshwright.program.ir import Atom, Op, Program, Value


class HeapOrder(Enum):
    """Order in which a compiler packs buffers into a heap."""

    BEST_FIT = "largest or longest-lived first, the heap of each body by itself"
    BY_TIME = "in the order in which live ranges begin, those of bodies included"
    OUTPUTS_APART = "outputs outside the heap, the rest best-fit into them and a heap"


class BodyBuffers(NamedTuple):
    """The buffers of one body of a loop or a branch that are not made inside it.

    inputs: with a buffer inside the body. outputs: that live to the end of the body.
    aliases: by input, the output that takes its buffer over.
    outside: inputs whose bytes are counted outside the body as well.
    """

    inputs: Sequence[Value]
    outputs: Sequence[Atom]
    aliases: dict[Value, Atom]
    outside: Collection[Value] = ()


class Compression(NamedTuple):
    """Limits of a compiler that removes the padding of tiles when memory is short.

    XLA: `HloRematerialization`, mode compress. num_rounds: how often the peak of memory
    is looked up, which moves as values shrink. least_share: of a value that its padding
    must exceed to be worth the copies.
    """

    num_rounds: int
    least_share: float


def all_inputs_shared(
    op: Op, number: int, fusions: Sequence[Fusion], layouts: Layouts
) -> BodyBuffers:
    """Body buffers where an operand and the body's input have one buffer.

    Only slices of stacked operands are values of the body itself, and what a loop
    carries is updated in place.
    """
    body = op.bodies[number]
    shared = shared_inputs(op, number)
    inputs = [v for v in body.inputs if v not in shared]
    aliases = carried_in_place(op, number, fusions, layouts)
    return BodyBuffers(inputs, stored_outputs(body), aliases)


def shared_inputs(op: Op, number: int) -> set[Value]:
    """The inputs of one body that have an operand's buffer: all but slices of one."""
    return {
        op.bodies[body].inputs[i]
        for wire in op.wires
        if not wire.is_stacked
        for body, i in wire.inputs
        if body == number
    }


def program_order(op: Op, number: int, fusions: Sequence[Fusion]) -> Sequence[Fusion]:
    """The fusions of a body in the order of the program."""
    del op, number
    return fusions


def never_preallocated(op: Op, result: Value) -> bool:
    """False: every result gets its buffer when it is written."""
    del op, result
    return False


def same_size_alone(operand_bytes: int, result_bytes: int, is_busy: bool) -> bool:
    """Whether sizes are equal and the kernel that wrote the operand wrote it alone."""
    return operand_bytes == result_bytes and not is_busy


@dataclass(frozen=True, slots=True)
class BufferPolicy:
    """Choices of one compiler in assigning buffers.

    heap: how buffers are packed.
    alignment_bytes: offsets are multiples of this, and so are the tables of addresses
        that kernels with several results, and prefetched arguments, have; 0 if unknown.
    compression: how padding is removed when memory is short; `None` if it is not.
    outputs: values of a program that live to its end.
    body_buffers: of body `number` of an op, whose fusions are given.
    body_order: the order in which such fusions run.
    is_preallocated: whether a result of an op has its buffer from the program's start.
    may_alias: whether a result may take an operand's buffer, by the bytes of both;
        `is_busy` says that the kernel that wrote the operand writes more than that.
    """

    heap: HeapOrder = HeapOrder.BEST_FIT
    alignment_bytes: int = 0
    compression: Compression | None = None
    outputs: Callable[[Program], Sequence[Atom]] = stored_outputs
    body_buffers: Callable[[Op, int, Sequence[Fusion], Layouts], BodyBuffers] = (
        all_inputs_shared
    )
    body_order: Callable[[Op, int, Sequence[Fusion]], Sequence[Fusion]] = program_order
    is_preallocated: Callable[[Op, Value], bool] = never_preallocated
    may_alias: Callable[[int, int, bool], bool] = same_size_alone
