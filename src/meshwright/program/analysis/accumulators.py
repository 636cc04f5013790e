"""Accumulators of loops: carried values to which each iteration adds an all-reduce.

XLA moves the all-reduce out of the loop (while-loop all-reduce code motion), since the
sum over devices of a total is the total of the sums.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from meshwright.program.ir import Atom, Op, Program, Value, Wire
from meshwright.program.ops import Trait, has_trait


@dataclass(frozen=True, slots=True)
class Accumulator:
    """A value carried by a loop to which each iteration adds a sum over devices.

    wire: path of the carried value through the loop (`ir.Wire`).
    reduction: the collective that sums over devices.
    between: dtype conversions of the collective's result, in order.
    adds: the op that adds the converted result to the carried value.
    """

    wire: Wire
    reduction: Op
    between: tuple[Op, ...]
    adds: Op

    @property
    def is_rounded(self) -> bool:
        """Whether the sum is converted to another dtype and back before it is added."""
        ends = (self.between or (self.reduction,))[-1].results[0]
        return bool(self.between) and ends.dtype == self.reduction.results[0].dtype


def loop_carries(op: Op) -> Iterator[tuple[int, int, Wire]]:
    """(operand position, result position, wire) for each value that a loop carries.

    A wire (`ir.Wire`) is the path of the value through the loop.
    """
    for wire in op.wires:
        if wire.operand is not None and wire.result is not None and not wire.is_stacked:
            yield wire.operand, wire.result, wire


def accumulators(loop: Op) -> list[Accumulator]:
    """The accumulators among the values that a scan carries.

    Empty for an op of another kind.
    """
    if loop.kind != "scan":
        return []
    (body,) = loop.bodies
    producers = {result: op for op in body.ops for result in op.results}
    reads = Counter(body.outputs)
    reads.update(v for op in body.ops for v in op.operands)
    carries = loop_carries(loop)
    found = (_accumulator(wire, body, producers, reads) for _, _, wire in carries)
    return [accumulator for accumulator in found if accumulator is not None]


def _accumulator(
    wire: Wire, body: Program, producers: Mapping[Value, Op], reads: Mapping[Atom, int]
) -> Accumulator | None:
    """The accumulator whose carried value takes the path `wire` through the loop.

    `None` if the carried value is not one, or if another op reads it or an addend.
    """
    (_, i), (_, o) = wire.inputs[0], wire.outputs[0]
    carried, handed_on = body.inputs[i], body.outputs[o]

    def producer_for_one_reader(atom: Atom) -> Op | None:
        if not isinstance(atom, Value) or reads[atom] != 1:
            return None
        return producers.get(atom)

    adds = producer_for_one_reader(handed_on)
    if adds is None or not has_trait(adds.kind, Trait.ADDS) or reads[carried] != 1:
        return None
    if carried not in adds.operands:
        return None
    (added,) = (v for v in adds.operands if v is not carried)
    between: list[Op] = []
    source = producer_for_one_reader(added)
    while source is not None and source.kind == "convert_element_type":
        between.append(source)
        source = producer_for_one_reader(source.operands[0])
    if source is None or not has_trait(source.kind, Trait.COLLECTIVE_REDUCTION):
        return None
    if source.params["monoid"] != "sum":
        return None
    return Accumulator(wire, source, tuple(reversed(between)), adds)
