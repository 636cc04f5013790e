"""Sums over devices that are only added up, taken once of what each device has added.

The TPU compiler does that to each reduction whose result a loop adds, in all turns, to
what nobody reads before it ends, also where it is converted in between: what the loop
carries is then what each device adds up itself, as large as what goes into the reduction
(XLA's `WhileLoopAllReduceCodeMotion`). And of two sums that are added it takes one, also
where the program rounds them on the way (`AllReduceReassociate`; roundings that are
undone are left out before).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from meshwright.predict.compilers.xla.fusion import is_zeros
from meshwright.program.analysis.accumulators import Accumulator, accumulators
from meshwright.program.ir import Atom, Literal, Op, Program, Value
from meshwright.program.ops import Trait, has_trait


def sunk(program: Program) -> tuple[Program, Mapping[Op, Op]]:
    """The program so changed; itself where nothing is added so.

    The second result says, for each op made anew, which one it was.
    """
    pass_ = _Sink()
    # First loops: a sum of two sums is none that the compiler takes out of one.
    return pass_.joined(pass_.program(program)), pass_.origins


Chain = tuple[Op, ...]
"""A sum over devices, and the conversions that its result goes through."""


class _Sink:
    def __init__(self) -> None:
        self.origins: dict[Op, Op] = {}

    def program(self, program: Program) -> Program:
        """The program with its loops changed, those of bodies included."""
        if not any(op.bodies for op in program.ops):
            return program
        maker = {result: op for op in program.ops for result in op.results}
        ops = tuple(new for op in program.ops for new in self._ops(op, maker))
        return program if ops == program.ops else replace(program, ops=ops)

    def joined(self, program: Program) -> Program:
        """The program with one sum for each few that are added and not read otherwise."""
        while pairs := dict(_pairs(program)):
            dropped = {op for pair in pairs.values() for chain in pair for op in chain}
            ops: list[Op] = []
            for op in program.ops:
                if op in pairs:
                    ops += self._one_sum(op, *pairs[op])
                elif op not in dropped:
                    ops.append(op)
            program = replace(program, ops=tuple(ops))
        return self._with_bodies(program)

    def _with_bodies(self, program: Program) -> Program:
        ops: list[Op] = []
        for op in program.ops:
            bodies = tuple(map(self.joined, op.bodies))
            if bodies == op.bodies:
                ops.append(op)
                continue
            ops.append(replace(op, bodies=bodies))
            self.origins[ops[-1]] = self.origins.get(op, op)
        is_same = tuple(ops) == program.ops
        return program if is_same else replace(program, ops=tuple(ops))

    def _one_sum(self, adds: Op, left: Chain, right: Chain) -> list[Op]:
        own = Value(adds.results[0].shape, adds.results[0].dtype)
        addends = (left[0].operands[0], right[0].operands[0])
        return [
            self._again(adds, addends, (own,)),
            self._again(left[0], (own,), adds.results),
        ]

    def _ops(self, op: Op, maker: Mapping[Value, Op]) -> Iterator[Op]:
        """What stands in an op's place."""
        bodies = tuple(map(self.program, op.bodies))
        loop = op if bodies == op.bodies else replace(op, bodies=bodies)
        behind: list[Op] = []
        for total in [t for t in accumulators(loop) if _is_taken_out(t, loop)]:
            before, loop, after = self._moved(loop, total, maker)
            yield before
            behind += after
        if loop is not op:
            self.origins[loop] = op
        yield loop
        yield from behind

    def _moved(
        self, loop: Op, total: Accumulator, maker: Mapping[Value, Op]
    ) -> tuple[Op, Op, list[Op]]:
        """Zeros to begin with, the loop without the reduction, and that behind it."""
        wire, reduction = total.wire, total.reduction
        assert wire.operand is not None
        assert wire.result is not None
        shape, dtype = reduction.operands[0].shape, total.adds.results[0].dtype
        zeros, own = Value(shape, dtype), Value(shape, dtype)
        filled = Op(
            "broadcast_in_dim", (Literal(0, dtype),), (zeros,),
            {"shape": shape, "dims": ()}, source=reduction.source,
        )  # fmt: skip
        start, result = loop.operands[wire.operand], loop.results[wire.result]
        changed = replace(
            loop,
            operands=_with(loop.operands, wire.operand, zeros),
            results=_with(loop.results, wire.result, own),
            bodies=(self._adding_own(loop.bodies[0], total, shape),),
        )
        if is_zeros(maker, start):
            return filled, changed, [self._again(reduction, (own,), (result,))]
        summed = Value(result.shape, dtype)
        return (
            filled,
            changed,
            [
                self._again(reduction, (own,), (summed,)),
                self._again(total.adds, (start, summed), (result,)),
            ],
        )

    def _adding_own(
        self, body: Program, total: Accumulator, shape: tuple[int, ...]
    ) -> Program:
        """A turn that adds what the device has itself."""
        (_, i), (_, o) = total.wire.inputs[0], total.wire.outputs[0]
        carried = Value(shape, body.inputs[i].dtype)
        named: dict[Atom, Atom] = {
            body.inputs[i]: carried,
            total.reduction.results[0]: total.reduction.operands[0],
        }
        changed: dict[Op, Op] = {}
        for op in (*total.between, total.adds):
            made = Value(shape, op.results[0].dtype)
            named[op.results[0]] = made
            operands = tuple(named.get(v, v) for v in op.operands)
            changed[op] = self._again(op, operands, (made,))
        ops = (changed.get(op, op) for op in body.ops if op is not total.reduction)
        return replace(
            body,
            inputs=_with(body.inputs, i, carried),
            ops=tuple(ops),
            outputs=_with(body.outputs, o, changed[total.adds].results[0]),
        )

    def _again(
        self, op: Op, operands: tuple[Atom, ...], results: tuple[Value, ...]
    ) -> Op:
        """An op on other values."""
        made = replace(op, operands=operands, results=results)
        self.origins[made] = self.origins.get(op, op)
        return made


def _is_taken_out(total: Accumulator, loop: Op) -> bool:
    """Whether the compiler takes a sum out of a loop.

    A reduce-scatter that is converted only where it can itself be of that dtype: not of
    what an inner loop makes.
    """
    if not total.between or total.reduction.kind == "all_reduce":
        return True
    regions = (op for op in loop.bodies[0].ops if op.bodies)
    made = {result for op in regions for result in op.results}
    return not total.is_rounded and total.reduction.operands[0] not in made


def _with[T](values: tuple[T, ...], position: int, value: T) -> tuple[T, ...]:
    return (*values[:position], value, *values[position + 1 :])


def _pairs(program: Program) -> Iterator[tuple[Op, tuple[Chain, Chain]]]:
    """Additions of two sums over the same devices, each with the chains of both.

    Nobody else reads anything of those, and the conversions undo each other.
    """
    chains: dict[Atom, Chain] = {}
    added: list[tuple[Op, tuple[Chain, Chain]]] = []
    for op in program.ops:
        if op.kind == "all_reduce" and op.params["monoid"] == "sum":
            chains[op.results[0]] = (op,)
        elif op.kind == "convert_element_type" and op.operands[0] in chains:
            chains[op.results[0]] = (*chains[op.operands[0]], op)
        elif has_trait(op.kind, Trait.ADDS) and chains:
            left, right = map(chains.get, op.operands)
            if left is not None and right is not None and _match(left, right):
                added.append((op, (left, right)))
    if not added:
        return
    reads = Counter(program.outputs)
    reads.update(v for op in program.ops for v in op.operands)
    for op, pair in added:
        if all(reads[each.results[0]] == 1 for chain in pair for each in chain):
            yield op, pair


def _match(left: Chain, right: Chain) -> bool:
    """Whether two sums are over the same devices, and come as they were taken."""
    types = {(op.results[0].shape, op.results[0].dtype) for op in (left[0], right[0])}
    ends = {(op.results[0].shape, op.results[0].dtype) for op in (left[-1], right[-1])}
    alike = left[0].params["axes"] == right[0].params["axes"]
    return alike and left[0] is not right[0] and len(types) == 1 and types == ends
