"""What loops add up over devices: sums that nobody reads before the loop ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from meshwright.program.ir import Atom, Op, Program, Value, Wire
from meshwright.program.ops import Trait, has_trait


@dataclass(frozen=True, slots=True)
class Total:
    """What a loop of a device program adds up.

    wire: that carries it. reduction: whose results are added. between: conversions, from
    the one that reads those. adds: into what is carried.
    """

    wire: Wire
    reduction: Op
    between: tuple[Op, ...]
    adds: Op

    @property
    def is_rounded(self) -> bool:
        """Whether what is added has the dtype of the sum, but was converted."""
        ends = (self.between or (self.reduction,))[-1].results[0]
        return bool(self.between) and ends.dtype == self.reduction.results[0].dtype


def carries(op: Op) -> Iterator[tuple[int, int, Wire]]:
    """What a loop carries: the positions of its operand and its result, and the wire."""
    for wire in op.wires:
        if wire.operand is not None and wire.result is not None and not wire.is_stacked:
            yield wire.operand, wire.result, wire


def totals(loop: Op) -> list[Total]:
    """What a scan adds up, each without the others in the way; none of other ops."""
    if loop.kind != "scan":
        return []
    (body,) = loop.bodies
    maker = {result: op for op in body.ops for result in op.results}
    reads = Counter(body.outputs)
    reads.update(v for op in body.ops for v in op.operands)
    found = (_total(wire, body, maker, reads) for _, _, wire in carries(loop))
    return [total for total in found if total is not None]


def _total(
    wire: Wire, body: Program, maker: Mapping[Value, Op], reads: Mapping[Atom, int]
) -> Total | None:
    """What a wire carries, if nobody else reads that or what is added to it."""
    (_, i), (_, o) = wire.inputs[0], wire.outputs[0]
    carried, handed_on = body.inputs[i], body.outputs[o]

    def only(atom: Atom) -> Op | None:
        if not isinstance(atom, Value) or reads[atom] != 1:
            return None
        return maker.get(atom)

    adds = only(handed_on)
    if adds is None or not has_trait(adds.kind, Trait.ADDS) or reads[carried] != 1:
        return None
    if carried not in adds.operands:
        return None
    (added,) = (v for v in adds.operands if v is not carried)
    between: list[Op] = []
    made_by = only(added)
    while made_by is not None and made_by.kind == "convert_element_type":
        between.append(made_by)
        made_by = only(made_by.operands[0])
    if made_by is None or not has_trait(made_by.kind, Trait.COLLECTIVE_REDUCTION):
        return None
    if made_by.params["monoid"] != "sum":
        return None
    return Total(wire, made_by, tuple(reversed(between)), adds)
