"""Kernels that move slices between a loop's stacks and its body on a GPU.

XLA's GPU compiler does not let a matrix product read a slice of a stacked array, or write
one: a kernel copies the slice before the product reads it, and another one copies a
result into the stack. A stack starts as zeros, which a kernel before the loop writes.
An elementwise kernel slices what it reads by itself, and writes into the stack if nothing
else needs its result. The copies take time but no memory of their own, since a copied
slice takes the place of the slice that `buffer_assignment` counts.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from meshwright.predict.compilers.model.dataflow import bitcast_sources, stacked_ends
from meshwright.predict.compilers.model.fusion import Fusion, FusionKind
from meshwright.program.ir import Op, Value
from meshwright.program.ops import OpWork

_SLICING = frozenset({FusionKind.LOOP, FusionKind.REDUCTION})
"""Kinds of fusions that slice a stacked array by themselves."""

_NO_WORK = OpWork(0, 0)


def with_stack_copies(fusions: Sequence[Fusion]) -> tuple[Fusion, ...]:
    """The fusions with those that fill stacks before each loop and copy slices in it."""
    order: list[Fusion] = []
    for fusion in fusions:
        if fusion.bodies:
            order += _zeros(fusion.root)
            bodies = (
                _with_copies(fusion.root, number, with_stack_copies(body))
                for number, body in enumerate(fusion.bodies)
            )
            fusion = replace(fusion, bodies=tuple(bodies))
        order.append(fusion)
    return tuple(order)


def _zeros(op: Op) -> Iterator[Fusion]:
    """Fusions that write zeros into the stacks which a loop fills."""
    for wire in op.wires:
        if wire.is_stacked and wire.result is not None:
            yield _written(op.results[wire.result])


def _with_copies(op: Op, number: int, fusions: Sequence[Fusion]) -> tuple[Fusion, ...]:
    """A body's fusions between the copies of what it reads and of what it stacks."""
    body = op.bodies[number]
    sources = bitcast_sources(body)
    stacked = [sources.get(v, v) for each, v in stacked_ends(op) if each is body]
    readers = {
        value: [fusion.kind for fusion in fusions if value in fusion.reads]
        for value in _stacked_inputs(op, number)
    }
    before = [
        copy_of(value)
        for value, kinds in readers.items()
        if not _SLICING.issuperset(kinds)
    ]
    writers = {value: fusion for fusion in fusions for value in fusion.writes}
    uses = Counter(value for fusion in fusions for value in fusion.reads)
    after = [
        copy_of(value)
        for value in stacked
        if value in writers
        and (writers[value].kind is not FusionKind.LOOP or uses[value])
    ]
    return (*before, *fusions, *after)


def _stacked_inputs(op: Op, number: int) -> Iterator[Value]:
    """Inputs of a body that are slices of the loop's stacked operands."""
    for wire in op.wires:
        if wire.is_stacked:
            yield from (op.bodies[n].inputs[i] for n, i in wire.inputs if n == number)


def copy_of(value: Value) -> Fusion:
    """A fusion that reads a value and writes as many bytes."""
    copy = Value(value.shape, value.dtype)
    op = Op("copy_p", (value,), (copy,))
    return Fusion(op, FusionKind.LOOP, (value,), (copy,), _NO_WORK)


def _written(value: Value) -> Fusion:
    """A fusion that writes zeros of a value's shape and reads nothing."""
    zeros = Value(value.shape, value.dtype)
    op = Op("zeros_like", (value,), (zeros,))
    return Fusion(op, FusionKind.LOOP, (), (zeros,), _NO_WORK)
